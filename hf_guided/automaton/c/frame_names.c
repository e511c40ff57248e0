/* The names of an object that is being read: none comes twice, and those that have to come do.
 *
 * A name is known by its *text*: a number, the same for equal ones. What an object has already is a set of texts, so two
 * texts of a row whose objects have the same names, in whatever order, are in one state. What is written of an open name
 * is a text too; it is in the frame on top, for a name may be written in a component of its own.
 *
 * Most open names can no longer become one that is known: then masks do not depend on what is written. For them, and for
 * the tokens that end a name, a *new* text stands, which is the beginning of no known one. Where a second name comes
 * after such a name in one token, it could be the same: that is DOUBTFUL, and the token is read with the true text.
 */
#include "frames.h"

/* A text and one more byte; NO_MEMORY. */
int32_t text_plus(Machine *m, int32_t text, uint8_t byte)
{
    int32_t known = known_text_plus(m, text, byte);
    const Written before = m->written[text];
    if (known)
        return known;
    if (!has_room(&m->written, &m->written_room, m->written_count + 1, sizeof *m->written) ||
        !map_put(&m->text_after, (uint64_t)text << 8 | byte, (int32_t)m->written_count))
        return NO_MEMORY;
    if (before.depth >= m->deepest)
        m->deepest = before.depth + 1;
    m->written[m->written_count] = (Written){text, before.depth + 1, before.is_new, byte};
    return (int32_t)m->written_count++;
}

/* A known text and one more byte; 0 if there is none. */
int32_t known_text_plus(const Machine *m, int32_t text, uint8_t byte)
{
    const int32_t *known = map_find(&m->text_after, (uint64_t)text << 8 | byte);
    return known ? *known : 0;
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
static int64_t names_to_come(const Machine *m, const Component *c, int32_t names)
{
    const int64_t missing = missing_names(m, c, names), more = c->low - m->sets[names].count;
    return more > missing ? more : missing;
}

/* How many of the names of a component matter: those that have to come, and the others where more have to. */
static int64_t names_that_matter(const Machine *m, const Component *c, int32_t names)
{
    return names_to_come(m, c, names) > missing_names(m, c, names) ? c->name_count : c->required;
}

/* The frame after a mark in the component of an object; REFUSED where its register does not let it. */
int32_t marked(Machine *m, Frame frame, int32_t mark)
{
    const Component *c = m->components + frame.component;
    const int64_t count = m->sets[frame.names].count, room = c->high < 0 ? INT64_MAX : c->high - count;
    if (mark == BEGIN || mark == BEGIN_REQUIRED) {
        const int must = room < INT64_MAX && missing_names(m, c, frame.names) >= room;
        if (room <= 0 || must != (mark == BEGIN_REQUIRED))
            return REFUSED;
        frame.text = EMPTY_TEXT;
    } else if (mark == END) {
        if (has_name(m, frame.names, frame.text))
            return REFUSED;
        if ((frame.names = names_with(m, frame.names, frame.text)) < 0)
            return frame.names;
        frame.text = 0;
    } else if (mark == CLOSE) {
        if (count < c->low || missing_names(m, c, frame.names))
            return REFUSED;
    } else if (room <= 0 || (count >= c->most_names && !missing_names(m, c, frame.names)))
        return REFUSED;
    return frame_of(m, frame);
}

/* Whether every object whose name is open in a frame has a name that begins with a text. */
static int is_taken(Machine *m, Frame frame, int32_t text)
{
    const Set *set = m->sets + frame.names, *below = m->sets + frame.below;
    m->work -= set->count;
    if (m->components[frame.component].is_object) {
        for (int32_t i = 0; i < set->count; i++)
            if (is_within_text(m, m->members[set->begin + i], text))
                return 1;
        return 0;
    }
    for (int32_t i = 0; i < below->count; i++) {
        const Frame under = m->frames[m->members[below->begin + i]];
        if (under.text == ABOVE && !is_taken(m, under, text))
            return 0;
    }
    return 1;
}

/* Whether the open name of a frame could be the same as a new one of its object. */
int is_doubtful(Machine *m, Frame frame)
{
    Set *set = m->sets + frame.names;
    if (m->written[frame.text > 0 ? frame.text : EMPTY_TEXT].is_new)
        return 0;
    if (m->components[frame.component].is_object) {
        for (int32_t i = 0; set->has_new < 0 && i < set->count; i++)
            if (m->written[m->members[set->begin + i]].is_new)
                set->has_new = 1;
        if (set->has_new < 0)
            set->has_new = 0;
        return set->has_new;
    }
    for (int32_t i = 0; i < m->sets[frame.below].count; i++) {
        const Frame under = m->frames[m->members[m->sets[frame.below].begin + i]];
        if (under.text == ABOVE && is_doubtful(m, under))
            return 1;
    }
    return 0;
}

/* Looks whether the open name of a frame can end, or go on as none that its object has: 1, 0, or what is missing.
 *
 * Adds the frames in which it is the beginning of one that the object has, unless they are known, to `names_ahead`.
 */
static int64_t can_end(Machine *m, int32_t number, int64_t *count)
{
    const int32_t set = set_of(m, &number, 1), whole = set < 0 ? set : closed(m, set);
    if (whole < 0)
        return whole;
    for (int32_t i = 0; i < m->sets[whole].count; i++)
        if (!m->frames[m->members[m->sets[whole].begin + i]].text)
            return 1; /* it may end here */
    for (int32_t i = 0; i < m->sets[whole].count; i++)
        for (int byte = 0; byte < 256; byte++) {
            const Frame frame = m->frames[m->members[m->sets[whole].begin + i]];
            const Component *c = m->components + frame.component;
            const int32_t state = c->table[c->classes * frame.state + c->class_of[byte]];
            const int32_t text = known_text_plus(m, frame.text, (uint8_t)byte);
            int32_t next;
            if (!state || counted(c, &frame, state) < 0)
                continue;
            if (!text || !is_taken(m, frame, text))
                return 1;
            if ((next = moved_frame(m, frame, state, (uint8_t)byte)) < 0)
                return next;
            if (m->frames[next].is_productive > 0)
                return 1;
            if (m->frames[next].is_productive < 0) {
                if (!has_room(&m->names_ahead, &m->names_ahead_room, *count + 1, sizeof *m->names_ahead))
                    return NO_MEMORY;
                m->frames[next].is_productive = 0;
                m->names_ahead[(*count)++] = next;
            }
        }
    return 0;
}

int64_t is_productive(Machine *m, int32_t number)
{
    int64_t can = 0, count = 1;
    if (m->frames[number].text <= 0 || m->frames[number].is_productive >= 0)
        return m->frames[number].is_productive != 0;
    if (!is_taken(m, m->frames[number], m->frames[number].text))
        return m->frames[number].is_productive = 1;
    if (!has_room(&m->names_ahead, &m->names_ahead_room, 1, sizeof *m->names_ahead))
        return NO_MEMORY;
    m->names_ahead[0] = number;
    for (int64_t at = 0; !can && at < count; at++) /* a name may be longer than a stack is deep */
        can = can_end(m, m->names_ahead[at], &count);
    for (int64_t at = 0; can && at < count; at++)
        m->frames[m->names_ahead[at]].is_productive = -1; /* of some it is not known */
    if (can >= 0)
        m->frames[number].is_productive = (int32_t)can;
    return can;
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

/* Whether a name that an object needs, or has, begins with what is written of the open one. */
int is_watched(const Machine *m, Frame frame)
{
    const Component *c = m->components + frame.component;
    if (c->is_object) {
        const Set *set = m->sets + frame.names;
        const int32_t text = frame.text;
        for (int32_t i = 0; i < set->count; i++)
            if (is_within_text(m, m->members[set->begin + i], text))
                return 1;
        for (int64_t i = names_that_matter(m, c, frame.names); i-- > 0;)
            if (is_within_text(m, c->texts[i], text))
                return 1;
        return 0;
    }
    for (int32_t i = 0; i < m->sets[frame.below].count; i++) {
        Frame under = m->frames[m->members[m->sets[frame.below].begin + i]];
        if (under.text == ABOVE) {
            under.text = frame.text;
            if (is_watched(m, under))
                return 1;
        }
    }
    return 0;
}

/* Adds the nodes along the rest of a name, as far as the component of a frame reads it. */
static int64_t watch(Machine *m, Frame frame, int32_t node, int32_t name)
{
    const Component *c = m->components + frame.component;
    const int32_t length = m->written[name].depth - m->written[frame.text].depth;
    int32_t *texts = malloc((size_t)(length + 1) * sizeof *texts), text = name, state = frame.state;
    if (!texts)
        return NO_MEMORY;
    for (int32_t i = length; i-- > 0; text = m->written[text].before)
        texts[i] = text;
    for (int32_t i = 0; i < length; i++) {
        const uint8_t byte = (uint8_t)m->written[texts[i]].byte;
        node = child_by(m, node, byte);
        state = c->table[c->classes * state + c->class_of[byte]];
        if (!node || !state)
            break;
        if (!has_room(&m->watched, &m->watched_room, m->watched_count + 1, sizeof *m->watched)) {
            free(texts);
            return NO_MEMORY;
        }
        m->watched[m->watched_count++] = (Watched){node, texts[i], state};
    }
    free(texts);
    return 0;
}

static int by_node(const void *one, const void *other)
{
    const int32_t a = ((const Watched *)one)->node, b = ((const Watched *)other)->node;
    return (a > b) - (a < b);
}

static int64_t watch_all(Machine *m, Frame frame, Frame owner, int32_t node)
{
    const Component *c = m->components + owner.component;
    int64_t status = 0;
    if (c->is_object) {
        for (int32_t i = 0; i < m->sets[owner.names].count && !status; i++) {
            const int32_t name = m->members[m->sets[owner.names].begin + i];
            if (is_within_text(m, name, frame.text))
                status = watch(m, frame, node, name);
        }
        for (int64_t i = names_that_matter(m, c, owner.names); i-- > 0 && !status;)
            if (is_within_text(m, c->texts[i], frame.text))
                status = watch(m, frame, node, c->texts[i]);
        return status;
    }
    for (int32_t i = 0; i < m->sets[owner.below].count && !status; i++) {
        const Frame under = m->frames[m->members[m->sets[owner.below].begin + i]];
        if (under.text == ABOVE)
            status = watch_all(m, frame, under, node);
    }
    return status;
}

/* Adds to `watched` the nodes below a node at which the open name of a frame is the beginning of one that its object
 * needs, or has, in order.
 *
 * Returns how many, or that there is no memory.
 */
int64_t find_watched(Machine *m, Frame frame, int32_t node)
{
    const int64_t begin = m->watched_count;
    int64_t kept = begin;
    if (watch_all(m, frame, frame, node))
        return NO_MEMORY;
    if (m->watched_count > begin)
        qsort(m->watched + begin, (size_t)(m->watched_count - begin), sizeof *m->watched, by_node);
    for (int64_t i = begin; i < m->watched_count; i++)
        if (i == begin || m->watched[i].node != m->watched[kept - 1].node)
            m->watched[kept++] = m->watched[i];
    m->watched_count = kept;
    return kept - begin;
}

/* The name on the way to the end that comes next, or that the open `text` begins: its number; -1 if none has to come. */
int32_t target_name(Machine *m, const Component *c, int32_t names, int32_t text)
{
    const int64_t count = names_that_matter(m, c, names);
    m->work -= count;
    for (int64_t i = 0; i < count; i++)
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
