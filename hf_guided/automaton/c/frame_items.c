/* What is open in a text: the names of objects and the items of arrays, which have to become new ones.
 *
 * Frames whose component has a register are *owners*. The frame on top has the text of what is open in the innermost
 * owner; that owner has the text of what was open around it when that began, and so on: see `Frame`.
 *
 * An item is known by its *key*, a text too, the same for equal values. Python says it once for each complete text. What
 * has only begun is compared with keys as far as its own key is certain.
 *
 * An open item that could be one that the array has must have another way to end. Where infinitely many values remain
 * between it and the frame on top it has; else ways are tried, the shortest first.
 */
#include "frames.h"

enum { MOST_LOOKS = 5000, MOST_STEPS = 1000 }; /* frames looked at for one way to end, and for the next byte of it */

/* Adds the bytes of a text to `open`, the last first. Returns how many there are then, or that there is no memory. */
int64_t opened(Machine *m, int64_t length, int32_t text)
{
    if (!has_room(&m->open, &m->open_room, length + m->written[text].depth + 1, 1))
        return NO_MEMORY;
    m->work -= m->written[text].depth / 16;
    for (; m->written[text].depth; text = m->written[text].before)
        m->open[length++] = (uint8_t)m->written[text].byte;
    return length;
}

/* The bytes of what is open, with room for `more`; NULL if there is no memory. */
const uint8_t *open_item(Machine *m, int64_t length, int64_t more)
{
    if (!has_room(&m->item, &m->item_room, length + more + 1, 1))
        return NULL;
    for (int64_t i = 0; i < length; i++)
        m->item[i] = m->open[length - 1 - i];
    return m->item;
}

static int64_t owners_from(Machine *m, Frame frame, int64_t length, Visit visit, void *data)
{
    int64_t found;
    while (length >= 0 && frame.text) {
        const int32_t begin = (int32_t)m->sets[frame.below].begin, count = m->sets[frame.below].count;
        int32_t last = -1;
        if (m->components[frame.component].is_owner && frame.count) {
            if ((found = visit(m, frame, length, data)))
                return found;
            if (frame.count == OUTERMOST || frame.count == NEW_TEXT)
                return 0;
            length = opened(m, length, frame.count);
        }
        for (int32_t i = 0; i < count && length >= 0; i++) {
            const int32_t under = m->members[begin + i];
            if (m->frames[under].text != ABOVE)
                continue;
            if (last >= 0 && (found = owners_from(m, m->frames[last], length, visit, data)))
                return found;
            last = under;
        }
        if (last < 0)
            return 0;
        frame = m->frames[last];
    }
    return length < 0 ? length : 0;
}

/* Calls a function for each owner of what is open in a frame, the innermost first, up to the first result that is not 0.
 *
 * A name is always innermost: of its owner, and of no other, `text` is that of the frame. */
int64_t each_owner(Machine *m, Frame frame, Visit visit, void *data)
{
    const int32_t text = frame.text;
    int64_t length;
    if (text <= 0 || text == NEW_TEXT || (length = opened(m, 0, text)) < 0)
        return text <= 0 || text == NEW_TEXT ? 0 : NO_MEMORY;
    m->innermost = text;
    return owners_from(m, frame, length, visit, data);
}

/* Whether a text begins with what is open. */
int is_beginning(const Machine *m, int32_t text, int64_t length)
{
    int64_t i = 0;
    while (m->written[text].depth > length)
        text = m->written[text].before;
    for (; i < length && m->written[text].depth && m->written[text].byte == m->open[i]; i++)
        text = m->written[text].before;
    return i == length && !m->written[text].depth;
}

/* Whether an object has a name that begins with the open one, or the open item of an array may become a contested one,
 * or any known one; or what is missing. */
static int64_t is_taken(Machine *m, const Frame *owner, int64_t length, int is_any)
{
    const int is_array = m->components[owner->component].is_owner == ARRAY;
    const int32_t at = is_array ? choices_after(m, owner->component, owner->names) : 0;
    const Set *set;
    if (at < 0)
        return at;
    set = m->sets + (!is_array ? owner->names : is_any ? m->choices[at].known : m->choices[at].contested);
    m->work -= set->count;
    if (is_array && set->count && !open_item(m, length, 0))
        return NO_MEMORY;
    for (int32_t i = 0; i < set->count; i++) {
        const int32_t known = m->members[set->begin + i];
        if (is_array ? may_become(m, m->item, length, known, m->components[owner->component].compared)
                     : is_within_text(m, known, m->innermost))
            return 1;
    }
    return 0;
}

/* Whether an owner has something new, which what is open could be too: names and items for the way out it is not. */
static int64_t looks_doubtful(Machine *m, Frame owner, int64_t length, void *data)
{
    const Component *c = m->components + owner.component;
    (void)data;
    if (!has_name(m, owner.names, NEW_TEXT))
        return 0;
    if (c->is_owner == OBJECT) {
        for (int64_t i = names_that_matter(m, c, owner.names); i-- > 0;)
            if (is_within_text(m, c->texts[i], m->innermost))
                return 0;
    } else {
        const int32_t at = choices_after(m, owner.component, owner.names);
        if (at < 0)
            return at;
        return !(m->choices[at].target && is_beginning(m, m->choices[at].target, length));
    }
    return 1;
}

/* Whether what is open in a frame could be the same as something new in one of its owners. */
int64_t is_doubtful(Machine *m, Frame frame)
{
    return each_owner(m, frame, looks_doubtful, NULL);
}

static int64_t looks_watched(Machine *m, Frame owner, int64_t length, void *data)
{
    const Component *c = m->components + owner.component;
    const int64_t taken = is_taken(m, &owner, length, 1);
    (void)data;
    if (taken || c->is_owner == ARRAY)
        return taken;
    for (int64_t i = names_that_matter(m, c, owner.names); i-- > 0;)
        if (is_within_text(m, c->texts[i], m->innermost))
            return 1;
    return 0;
}

/* Whether what is open in a frame may become something that one of its owners has, or needs; or what is missing. */
int64_t is_watched(Machine *m, Frame frame)
{
    return each_owner(m, frame, looks_watched, NULL);
}

/* -- ways to end */

/* Whether infinitely many values remain in the component of a frame; or what is missing. */
static int64_t leaves_choice(Machine *m, const Frame *frame)
{
    const Component *c = m->components + frame->component;
    if (!m->has_items)
        return 0;
    if (!c->unbounded && m->ask(-1 - (int64_t)frame->component, 0, 0, 0) < 0)
        return FAILED;
    c = m->components + frame->component;
    if (!c->unbounded[frame->state])
        return 0;
    return !c->begins || c->high < 0 || frame->count + c->owed[frame->state] + 2 <= c->high;
}

/* Answers from which states of a component infinitely many values remain; the array has to live as long. */
PUBLIC void hf_guided_machine_unbounded_are(Machine *m, int64_t component, const uint8_t *unbounded)
{
    m->components[component].unbounded = unbounded;
}

/* Whether all that is open in a frame can plainly end as something new, in one of its stacks: 1, 0, or what is missing.
 *
 * is_free  whether infinitely many values remain in a frame above this one
 */
static int64_t is_certain(Machine *m, Frame frame, int64_t length, int64_t is_free)
{
    int64_t status;
    while (frame.text) {
        const int32_t begin = (int32_t)m->sets[frame.below].begin, count = m->sets[frame.below].count;
        int32_t last = -1;
        if (m->components[frame.component].is_owner && frame.count) {
            if (!is_free && (status = is_taken(m, &frame, length, 0)))
                return status < 0 ? status : 0;
            if (frame.count == OUTERMOST || frame.count == NEW_TEXT)
                return 1;
            if ((length = opened(m, length, frame.count)) < 0)
                return NO_MEMORY;
        }
        if (!is_free && (is_free = leaves_choice(m, &frame)) < 0)
            return is_free;
        for (int32_t i = 0; i < count; i++) {
            const int32_t under = m->members[begin + i];
            if (m->frames[under].text != ABOVE)
                continue;
            if (last >= 0 && (status = is_certain(m, m->frames[last], length, is_free)))
                return status;
            last = under;
        }
        if (last < 0)
            return 1;
        frame = m->frames[last];
    }
    return 1;
}

static int64_t ends_plainly(Machine *m, Frame frame)
{
    int64_t length;
    if (frame.text <= 0 || frame.text == NEW_TEXT)
        return 1;
    if ((length = opened(m, 0, frame.text)) < 0)
        return NO_MEMORY;
    m->innermost = frame.text;
    return is_certain(m, frame, length, 0);
}

/* Bytes to the end of what is open, about: as far as exits are known. With the characters that a counted string must
 * still have: without them, thousands of frames inside an escape would seem to be nearer to the end than one after it. */
static int64_t bytes_ahead(Machine *m, Frame frame)
{
    int64_t bytes = 0;
    for (;;) {
        const Component *c = m->components + frame.component;
        int32_t i = 0;
        bytes += c->exits ? least_size(m, frame) + owing(c, &frame) : 0;
        while (i < m->sets[frame.below].count && m->frames[m->members[m->sets[frame.below].begin + i]].text != ABOVE)
            i++;
        if (i == m->sets[frame.below].count)
            return bytes;
        frame = m->frames[m->members[m->sets[frame.below].begin + i]];
    }
}

static int is_before(const Ahead *a, const Ahead *b)
{
    if (a->cost != b->cost)
        return a->cost < b->cost;
    return a->depth > b->depth || (a->depth == b->depth && a->at < b->at);
}

/* Adds a frame to those that are looked at: a heap, the nearest to its end first. */
static int64_t look_later(Machine *m, int32_t number, int32_t depth, int32_t from, int64_t *count, int64_t *seen)
{
    const Ahead new = {depth + bytes_ahead(m, m->frames[number]), depth, (int32_t)*seen};
    int64_t at = (*count)++;
    if (!has_room(&m->ahead, &m->ahead_room, *count, sizeof *m->ahead) ||
        !has_room(&m->seen, &m->seen_room, *seen + 1, sizeof *m->seen))
        return NO_MEMORY;
    m->frames[number].is_seen = 1;
    m->seen[(*seen)++] = (Step){from, number};
    for (; at && is_before(&new, m->ahead + (at - 1) / 2); at = (at - 1) / 2)
        m->ahead[at] = m->ahead[(at - 1) / 2];
    m->ahead[at] = new;
    return 0;
}

static Ahead nearest(Machine *m, int64_t *count)
{
    const Ahead first = m->ahead[0], last = m->ahead[--*count];
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < *count) {
        child += child + 1 < *count && is_before(m->ahead + child + 1, m->ahead + child);
        if (!is_before(m->ahead + child, &last))
            break;
        m->ahead[at] = m->ahead[child];
        at = child;
    }
    m->ahead[at] = last;
    return first;
}

/* Whether white space need not come: the component may end without it, or the same may come. */
static int means_nothing(const Component *c, int32_t state, int32_t spaced)
{
    const int32_t *here = c->table + c->classes * state, *there = c->table + c->classes * spaced;
    if (c->exits && c->exits[spaced] < c->exits[state])
        return 0;
    for (int64_t class = 0; class < c->classes; class++)
        if (here[class] && here[class] == there[class])
            return 1;
    return c->accepting[state];
}

static int64_t count_keys(Machine *m, Frame owner, int64_t length, void *data)
{
    const int is_array = m->components[owner.component].is_owner == ARRAY;
    const int32_t at = is_array ? choices_after(m, owner.component, owner.names) : 0;
    int in_string = 0;
    if (at < 0)
        return at;
    for (int64_t i = length; i-- > 0;) /* `open` has the last byte first */
        if (m->open[i] == '"')
            in_string = !in_string;
        else if (m->open[i] == '\\' && in_string)
            i--;
    ((int64_t *)data)[0] += m->sets[is_array ? m->choices[at].contested : owner.names].count;
    ((int64_t *)data)[1] = in_string;
    return 0;
}

/* Looks at the frames after one byte more. Of each class as many bytes as may lead to something that is there, and one
 * more: bytes that lead to the same state differ only in that. Returns 1 if one is known to have an end, 0, or what is
 * missing. */
static int64_t look_onwards(Machine *m, Frame frame, Ahead here, int is_way, int64_t *count, int64_t *seen)
{
    int64_t known[2] = {1, 0}, used[256] = {0}, status = each_owner(m, frame, count_keys, known);
    for (const int32_t *letter = m->letters; *letter >= 0 && !status; letter++) {
        const Component *c = m->components + frame.component;
        const int32_t class = c->class_of[*letter], state = c->table[c->classes * frame.state + class];
        int32_t next;
        if (!state || used[class]++ > known[0])
            continue;
        if (is_space((uint8_t)*letter) && !known[1] && means_nothing(c, frame.state, state))
            continue;
        if ((next = moved_frame(m, frame, state, (uint8_t)*letter)) == REFUSED)
            continue;
        if (next < 0)
            return next;
        if (m->frames[next].is_productive > 0 && !is_way)
            return 1;
        if (m->frames[next].is_productive && !m->frames[next].is_seen)
            status = look_later(m, next, here.depth + 1, here.at, count, seen);
    }
    return status;
}

/* Looks from a frame for one in which all that is open can plainly end as something new, or, for the `way` out, can no
 * longer become anything known. Which one is found depends on nothing but the frame: so does the rest of a way on which
 * the frame is.
 *
 * Returns 1, 0 where there is none, 2 where that is not known, or what is missing; and where it is, among those seen.
 */
static int64_t look_ahead(Machine *m, int32_t number, int is_way, Ahead *here, int64_t *seen)
{
    int64_t count = 0, status = look_later(m, number, 0, -1, &count, seen);
    for (int looks = 0; count && !status && looks < (is_way ? MOST_STEPS : MOST_LOOKS); looks++) {
        int32_t set, whole;
        *here = nearest(m, &count);
        set = m->seen[here->at].frame;
        m->work--;
        if ((whole = set_of(m, &set, 1)) < 0 || (whole = closed(m, whole)) < 0)
            status = whole;
        for (int32_t i = 0; !status && i < m->sets[whole].count; i++) {
            const Frame frame = m->frames[m->members[m->sets[whole].begin + i]];
            status = is_way ? is_watched(m, frame) : ends_plainly(m, frame);
            status = is_way && status >= 0 ? !status : status;
        }
        for (int32_t i = 0; !status && i < m->sets[whole].count; i++)
            status = look_onwards(m, m->frames[m->members[m->sets[whole].begin + i]], *here, is_way, &count, seen);
    }
    for (int64_t i = 0; i < *seen; i++)
        m->frames[m->seen[i].frame].is_seen = 0;
    return status || !count ? status : 2;
}

/* Whether all that is open in a frame can end as something new: 1, 0, or what is missing. */
int64_t is_productive(Machine *m, int32_t number)
{
    int64_t can, seen = 0;
    Ahead here;
    if (m->frames[number].text <= 0 || m->frames[number].is_productive >= 0)
        return m->frames[number].is_productive != 0;
    if ((can = ends_plainly(m, m->frames[number]))) {
        if (can > 0)
            m->frames[number].is_productive = 1;
        return can;
    }
    can = look_ahead(m, number, 0, &here, &seen);
    for (int64_t at = 0; !can && at < seen; at++)
        m->frames[m->seen[at].frame].is_productive = 0;
    if (can >= 0)
        m->frames[number].is_productive = can == 1;
    return can < 0 ? can : can == 1;
}

/* The frame after the next byte on the way from one in which what is open may become something known: the same where
 * an end or a call leads to a frame in which it cannot; 0 where no way is known, or what is missing. */
int32_t next_on_way(Machine *m, int32_t number)
{
    int64_t seen = 0, found;
    int32_t next;
    Ahead here;
    if (m->frames[number].way >= 0)
        return m->frames[number].way;
    if ((found = look_ahead(m, number, 1, &here, &seen)) < 0)
        return (int32_t)found;
    m->frames[number].way = 0;
    if (found != 1)
        return 0;
    next = m->seen[here.at].frame;
    for (int32_t at = here.at; at >= 0; at = m->seen[at].by) {
        m->frames[m->seen[at].frame].way = next;
        next = m->seen[at].frame;
    }
    return m->frames[number].way;
}

/* -- nodes of the vocabulary where the next item, or name, may be one that is known */

typedef struct {
    Frame frame;
    int32_t node;
} Place;

static int64_t watch(Machine *m, int32_t node, int32_t frame)
{
    if (!has_room(&m->watched, &m->watched_room, m->watched_count + 1, sizeof *m->watched))
        return NO_MEMORY;
    m->watched[m->watched_count++] = (Watched){node, frame};
    return 0;
}

/* Adds the nodes along the rest of a name, as far as the component of a frame reads it. */
static int64_t watch_name(Machine *m, const Place *place, int32_t name)
{
    Frame frame = place->frame;
    int32_t node = place->node;
    const int64_t length = m->written[name].depth - m->written[frame.text].depth, all = opened(m, 0, name);
    int64_t status = all < 0 ? all : 0;
    for (int64_t i = length; i-- > 0 && !status;) {
        const Component *c = m->components + frame.component;
        const uint8_t byte = m->open[i];
        const int32_t state = c->table[c->classes * frame.state + c->class_of[byte]];
        int32_t next;
        if (!(node = child_by(m, node, byte)) || !state || (next = moved_frame(m, frame, state, byte)) == REFUSED)
            return 0;
        if (next < 0 || (status = watch(m, node, next)))
            return NO_MEMORY;
        frame = m->frames[next];
    }
    return status;
}

/* Adds the nodes below one at which an item may become one of some keys. The bytes of the item are in `item`. */
static int64_t watch_item(Machine *m, Frame frame, int32_t node, int64_t length, const int32_t *keys, int64_t count,
                          int64_t compared)
{
    const Component *c = m->components + frame.component;
    int64_t status = 0;
    for (int64_t child = m->child[node]; child < m->child[node + 1] && !status; child++) {
        const int32_t state = c->table[c->classes * frame.state + c->class_of[m->byte[child]]];
        int64_t i = 0;
        int32_t next;
        if (!state)
            continue;
        m->item[length] = m->byte[child];
        while (i < count && !may_become(m, m->item, length + 1, keys[i], compared))
            i++;
        if (i == count || (next = moved_frame(m, frame, state, m->byte[child])) == REFUSED)
            continue;
        if (next < 0 || watch(m, (int32_t)child, next))
            return NO_MEMORY;
        status = watch_item(m, m->frames[next], (int32_t)child, length + 1, keys, count, compared);
        c = m->components + frame.component;
    }
    return status;
}

static int64_t watch_owner(Machine *m, Frame owner, int64_t length, void *data)
{
    const Component *c = m->components + owner.component;
    const Place *place = data;
    int64_t status = 0, count = 0;
    int32_t *keys, set;
    if (c->is_owner == OBJECT) {
        for (int32_t i = 0; i < m->sets[owner.names].count && !status; i++) {
            const int32_t name = m->members[m->sets[owner.names].begin + i];
            if (is_within_text(m, name, m->innermost))
                status = watch_name(m, place, name);
        }
        for (int64_t i = names_that_matter(m, c, owner.names); i-- > 0 && !status;)
            if (is_within_text(m, c->texts[i], m->innermost))
                status = watch_name(m, place, c->texts[i]);
        return status || opened(m, 0, m->innermost) >= 0 ? status : NO_MEMORY; /* `open` is again what it was */
    }
    if ((set = choices_after(m, owner.component, owner.names)) < 0)
        return set;
    if (!m->sets[set = m->choices[set].known].count)
        return 0;
    if (!(keys = malloc((size_t)m->sets[set].count * sizeof *keys)))
        return NO_MEMORY;
    if (!open_item(m, length, m->longest))
        status = NO_MEMORY;
    for (int32_t i = 0; i < m->sets[set].count && !status; i++) {
        keys[count] = m->members[m->sets[set].begin + i];
        count += may_become(m, m->item, length, keys[count], c->compared);
    }
    if (count)
        status = watch_item(m, place->frame, place->node, length, keys, count, c->compared);
    free(keys);
    return status;
}

static int by_node(const void *one, const void *other)
{
    const int32_t a = ((const Watched *)one)->node, b = ((const Watched *)other)->node;
    return (a > b) - (a < b);
}

/* Adds to `watched` the nodes below a node at which what is open in a frame is the beginning of something that one of
 * its owners needs, or has, in order.
 *
 * Returns how many, or what is missing.
 */
int64_t find_watched(Machine *m, Frame frame, int32_t node)
{
    const int64_t begin = m->watched_count;
    int64_t kept = begin;
    Place place = {frame, node};
    const int64_t status = each_owner(m, frame, watch_owner, &place);
    if (status)
        return status;
    if (m->watched_count > begin)
        qsort(m->watched + begin, (size_t)(m->watched_count - begin), sizeof *m->watched, by_node);
    for (int64_t i = begin; i < m->watched_count; i++)
        if (i == begin || m->watched[i].node != m->watched[kept - 1].node)
            m->watched[kept++] = m->watched[i];
    m->watched_count = kept;
    return kept - begin;
}
