"""Long runs that look for mistakes: engines against each other, and hostile texts against the constructors."""
