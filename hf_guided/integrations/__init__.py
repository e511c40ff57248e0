"""Other people's frameworks, one file each; imported only by those who use them."""
