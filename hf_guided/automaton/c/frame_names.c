/* The names of an object that is being read, and the items of an array: none comes twice, and those that have to come do.
 *
 * A name is known by its *text*: a number, the same for equal ones. What an object has already is a set of texts, so two
 * texts of a row whose objects have the same names, in whatever order, are in one state. What is written of an open name
 * is a text too; it is in the frame on top, for a name may be written in a component of its own. The items of an array
 * are such texts too, but what it has already is a set of keys: see frame_items.c.
 *
 * Most open names can no longer become one that is known: then masks do not depend on what is written. For them, and for
 * the tokens that end a name, a *new* text stands, which is the beginning of no known one. Where a second name comes
 * after such a name in one token, it could be the same: that is DOUBTFUL, and the token is read with the true text.
 */
#include "frames.h"

/* A text and one more byte; NO_MEMORY. */
int32_t text_plus(Machine *m, int32_t text, uint8_t byte)
{
    const int32_t *known = map_find(&m->text_after, (uint64_t)text << 8 | byte);
    const Written before = m->written[text];
    if (known || text == NEW_TEXT)
        return known ? *known : NEW_TEXT;
    if (!has_room(&m->written, &m->written_room, m->written_count + 1, sizeof *m->written) ||
        !map_put(&m->text_after, (uint64_t)text << 8 | byte, (int32_t)m->written_count))
        return NO_MEMORY;
    if (before.depth >= m->deepest)
        m->deepest = before.depth + 1;
    m->written[m->written_count] = (Written){text, before.depth + 1, byte, 0, -1};
    return (int32_t)m->written_count++;
}

/* Whether a text begins with another one. */
int is_within_text(const Machine *m, int32_t text, int32_t begin)
{
    while (m->written[text].depth > m->written[begin].depth)
        text = m->written[text].before;
    return text == begin;
}

int has_name(const Machine *m, int32_t names, int32_t text)
{
    const int32_t *members = m->members + m->sets[names].begin;
    int32_t low = 0, high = m->sets[names].count;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (members[middle] < text)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->sets[names].count && members[low] == text;
}

/* The set of names with that of a text. */
int32_t names_with(Machine *m, int32_t names, int32_t text)
{
    const int32_t count = m->sets[names].count;
    int32_t *members, set;
    if (has_name(m, names, text))
        return names;
    if (!(members = malloc((size_t)(count + 1) * sizeof *members)))
        return NO_MEMORY;
    memcpy(members, m->members + m->sets[names].begin, (size_t)count * sizeof *members);
    members[count] = text;
    set = set_of(m, members, count + 1);
    free(members);
    return set;
}

static int64_t missing_names(const Machine *m, const Component *c, int32_t names)
{
    int64_t missing = 0;
    for (int64_t i = 0; i < c->required; i++)
        missing += !has_name(m, names, c->texts[i]);
    return missing;
}

/* How many names have to come beside those that an object has. */
int64_t names_to_come(const Machine *m, const Component *c, int32_t names)
{
    const int64_t missing = missing_names(m, c, names), more = c->low - m->sets[names].count;
    return more > missing ? more : missing;
}

/* How many of the names of a component matter: those that have to come, and the others where more have to. */
int64_t names_that_matter(const Machine *m, const Component *c, int32_t names)
{
    return names_to_come(m, c, names) > missing_names(m, c, names) ? c->name_count : c->required;
}

/* A text that follows another one; NEW_TEXT where one of them is new. */
static int32_t joined(Machine *m, int32_t text, int32_t more)
{
    const int32_t length = m->written[more].depth;
    uint8_t *bytes;
    if (text == NEW_TEXT || more == NEW_TEXT)
        return NEW_TEXT;
    m->work -= length;
    if (!(bytes = malloc((size_t)length + 1)))
        return NO_MEMORY;
    for (int32_t i = length; i-- > 0; more = m->written[more].before)
        bytes[i] = (uint8_t)m->written[more].byte;
    for (int32_t i = 0; i < length && text > 0; i++)
        text = text_plus(m, text, bytes[i]);
    free(bytes);
    return text;
}

/* The frame after what is open in an owner has ended, and is among what it has; REFUSED where it was already. */
static int32_t ended(Machine *m, Frame frame)
{
    const Component *c = m->components + frame.component;
    const int32_t entered = c->is_owner == ARRAY ? key_of(m, frame.text) : frame.text;
    int32_t at;
    if (entered < 0 || has_name(m, frame.names, entered))
        return entered < 0 ? entered : REFUSED;
    if ((frame.names = names_with(m, frame.names, entered)) < 0)
        return frame.names;
    if (c->is_owner == ARRAY) {
        if ((at = choices_after(m, frame.component, frame.names)) < 0 || !m->choices[at].may_end)
            return at < 0 ? at : REFUSED;
    }
    frame.text = frame.count == OUTERMOST ? 0 : joined(m, frame.count, frame.text);
    frame.count = 0;
    return frame.text < 0 ? NO_MEMORY : frame_of(m, frame);
}

/* The frame after a mark in the component of an owner; REFUSED where its register does not let it. */
int32_t marked(Machine *m, Frame frame, int32_t mark)
{
    const Component *c = m->components + frame.component;
    const int64_t count = m->sets[frame.names].count, room = c->high < 0 ? INT64_MAX : c->high - count;
    int32_t at;
    if (mark == BEGIN || mark == BEGIN_REQUIRED) {
        const int must = room < INT64_MAX && missing_names(m, c, frame.names) >= room;
        if (room <= 0 || must != (mark == BEGIN_REQUIRED))
            return REFUSED;
        frame.count = frame.text ? frame.text : OUTERMOST;
        frame.text = EMPTY_TEXT;
    } else if (mark == END)
        return ended(m, frame);
    else if (mark == CLOSE) {
        if (count < c->low || missing_names(m, c, frame.names))
            return REFUSED;
    } else if (c->is_owner == ARRAY) {
        if ((at = choices_after(m, frame.component, frame.names)) < 0 || !m->choices[at].may_go_on)
            return at < 0 ? at : REFUSED;
    } else if (room <= 0 || (count >= c->most_names && !missing_names(m, c, frame.names)))
        return REFUSED;
    return frame_of(m, frame);
}

/* Notes the names of a component as texts. Returns 0, or that there is no memory. */
int64_t take_names(Machine *m, Component *c)
{
    int64_t at = 0;
    if (!(c->texts = malloc((size_t)(c->name_count + 1) * sizeof *c->texts)))
        return NO_MEMORY;
    for (int64_t i = 0; i < c->name_count; i++) {
        int32_t text = EMPTY_TEXT;
        for (; at < c->name_ends[i]; at++)
            if ((text = text_plus(m, text, c->names[at])) < 0) {
                free(c->texts);
                return NO_MEMORY;
            }
        c->texts[i] = text;
    }
    return 0;
}

/* The name on the way to the end that comes next, or that the open `text` begins: its number, from one on; -1 if there is
 * none. */
int32_t target_name(Machine *m, const Component *c, int32_t names, int32_t text, int32_t from)
{
    const int64_t count = names_that_matter(m, c, names);
    m->work -= count;
    for (int64_t i = from; i < count; i++)
        if ((!text || is_within_text(m, c->texts[i], text)) && !has_name(m, names, c->texts[i]))
            return (int32_t)i;
    return -1;
}

/* Bytes of the members that have to come, from where the name of the first begins to the end of the object. */
int64_t member_bytes(Machine *m, const Component *c, int32_t names)
{
    int64_t others = names_to_come(m, c, names) - missing_names(m, c, names), bytes = 0, last = -1;
    for (int64_t i = 0; i < c->name_count; i++) {
        if (has_name(m, names, c->texts[i]) || (i >= c->required && others-- <= 0))
            continue;
        bytes += last < 0 ? 0 : c->legs[last];
        last = i;
    }
    if (others > 0 || bytes >= UNREACHABLE)
        return UNREACHABLE;
    return last < 0 ? 0 : bytes + c->legs[c->name_count + last];
}
