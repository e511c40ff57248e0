/* Reads texts by a network, and finds the tokens that may come: see frame_machine.py.
 *
 * A *frame* is a state of a component on top of the frames to return to, which are a *set*. A text may be read in
 * several ways, so its state is a set too. Equal frames are one, and equal sets. Where a set leads by a byte is kept,
 * so a text that looks like an earlier one is read by looking up.
 *
 * Of registers these loops have the names of an object and the items of an array (frame_names.c, frame_items.c), and
 * the length of a string: a frame counts its characters, each when its first byte is read. No frame has more than there
 * may be, and where there is no bound the count ends at those that there must be.
 *
 * Components, and the tables of what tokens do in a state of one, come from Python: where one is missing, a function
 * says which, and is called again when it is there.
 */
#include "frames.h"

int map_put(Map *map, uint64_t key, int32_t value)
{
    uint64_t at;
    if (2 * (map->used + 1) > map->room) {
        Map larger = {NULL, 0, map->room ? 2 * map->room : 256};
        if (!(larger.pairs = calloc((size_t)larger.room, sizeof *larger.pairs)))
            return 0;
        for (int64_t i = 0; i < map->room; i++)
            if (map->pairs[i].key)
                map_put(&larger, map->pairs[i].key, map->pairs[i].value);
        free(map->pairs);
        *map = larger;
    }
    for (at = mixed(key) & (uint64_t)(map->room - 1); map->pairs[at].key; at = (at + 1) & (uint64_t)(map->room - 1))
        ;
    map->pairs[at] = (Pair){key, value};
    map->used++;
    return 1;
}

static uint64_t frame_hash(const Frame *frame)
{
    return mixed(mixed(mixed((uint64_t)(uint32_t)frame->component << 32 | (uint32_t)frame->state) ^
                       ((uint64_t)(uint32_t)frame->count << 32 | (uint32_t)frame->below)) ^
                 ((uint64_t)(uint32_t)frame->names << 32 | (uint32_t)frame->text));
}

static uint64_t set_hash(const int32_t *items, int64_t count)
{
    uint64_t hash = (uint64_t)count;
    for (int64_t i = 0; i < count; i++)
        hash = mixed(hash ^ (uint32_t)items[i]);
    return hash;
}

/* New buckets for `count` things, twice as many at least; NULL if there is no memory. */
static int32_t *fresh_buckets(int64_t *room, int64_t count)
{
    int32_t *buckets;
    int64_t larger = *room ? *room : 64;
    while (larger < 4 * count)
        larger *= 2;
    if ((buckets = malloc((size_t)larger * sizeof *buckets))) {
        memset(buckets, 0xff, (size_t)larger * sizeof *buckets);
        *room = larger;
    }
    return buckets;
}

int32_t frame_of(Machine *m, Frame frame)
{
    uint64_t at;
    int32_t found;
    if (2 * (m->frame_count + 1) > m->frame_bucket_room) {
        int32_t *buckets = fresh_buckets(&m->frame_bucket_room, m->frame_count + 1);
        if (!buckets)
            return NO_MEMORY;
        free(m->frame_buckets);
        m->frame_buckets = buckets;
        for (int32_t i = 0; i < m->frame_count; i++) {
            at = frame_hash(m->frames + i) & (uint64_t)(m->frame_bucket_room - 1);
            while (buckets[at] >= 0)
                at = (at + 1) & (uint64_t)(m->frame_bucket_room - 1);
            buckets[at] = i;
        }
    }
    at = frame_hash(&frame) & (uint64_t)(m->frame_bucket_room - 1);
    while ((found = m->frame_buckets[at]) >= 0) {
        const Frame *other = m->frames + found;
        if (other->component == frame.component && other->state == frame.state && other->below == frame.below &&
            other->count == frame.count && other->names == frame.names && other->text == frame.text)
            return found;
        at = (at + 1) & (uint64_t)(m->frame_bucket_room - 1);
    }
    if (!has_room(&m->frames, &m->frame_room, m->frame_count + 1, sizeof *m->frames))
        return NO_MEMORY;
    m->frames[m->frame_count] = frame;
    m->frames[m->frame_count].needed = 0;
    m->frames[m->frame_count].is_seen = 0;
    m->frames[m->frame_count].is_productive = m->frames[m->frame_count].way = -1;
    return m->frame_buckets[at] = (int32_t)m->frame_count++;
}

/* The set of some frames, which are sorted here. */
int32_t set_of(Machine *m, int32_t *items, int64_t count)
{
    uint64_t at, hash;
    int32_t found;
    for (int64_t i = 1; i < count; i++) { /* few, and mostly sorted */
        const int32_t item = items[i];
        int64_t j = i;
        for (; j && items[j - 1] > item; j--)
            items[j] = items[j - 1];
        items[j] = item;
    }
    if (2 * (m->set_count + 1) > m->set_bucket_room) {
        int32_t *buckets = fresh_buckets(&m->set_bucket_room, m->set_count + 1);
        if (!buckets)
            return NO_MEMORY;
        free(m->set_buckets);
        m->set_buckets = buckets;
        for (int32_t i = 0; i < m->set_count; i++) {
            at = set_hash(m->members + m->sets[i].begin, m->sets[i].count) & (uint64_t)(m->set_bucket_room - 1);
            while (buckets[at] >= 0)
                at = (at + 1) & (uint64_t)(m->set_bucket_room - 1);
            buckets[at] = i;
        }
    }
    hash = set_hash(items, count);
    at = hash & (uint64_t)(m->set_bucket_room - 1);
    while ((found = m->set_buckets[at]) >= 0) {
        const Set *other = m->sets + found;
        if (other->count == count &&
            (!count || !memcmp(m->members + other->begin, items, (size_t)count * sizeof *items)))
            return found;
        at = (at + 1) & (uint64_t)(m->set_bucket_room - 1);
    }
    if (!has_room(&m->sets, &m->set_room, m->set_count + 1, sizeof *m->sets) ||
        !has_room(&m->members, &m->member_room, m->member_count + count, sizeof *m->members))
        return NO_MEMORY;
    m->sets[m->set_count] = (Set){
        {0, 0, 0, 0}, m->member_count, (int32_t)count, -1, -1, -1, -1, -1, -1, INT32_MAX, -1, 0, 0};
    if (count)
        memcpy(m->members + m->member_count, items, (size_t)count * sizeof *items);
    m->member_count += count;
    return m->set_buckets[at] = (int32_t)m->set_count++;
}

static int is_loaded(Machine *m, int64_t component)
{
    if (component < m->component_count && m->components[component].table)
        return 1;
    m->missing = component;
    return 0;
}

/* The frame at the start of a component, in the open `text`. */
int32_t entered(Machine *m, int32_t component, int32_t below, int32_t text)
{
    if (!is_loaded(m, component))
        return NEEDS_COMPONENT;
    return frame_of(m, (Frame){component, (int32_t)m->components[component].start, below, 0, 0, text, -1, -1, 0, 0});
}

/* The frame that a call or a mark leads to; REFUSED where its register does not let it. */
int32_t called(Machine *m, Frame frame, const int32_t *call)
{
    const Component *component = m->components + frame.component;
    int32_t callee = (int32_t)component->callees[call[0]], after, below, text = frame.text;
    if (callee == END && component->begins && frame.count < component->low)
        return REFUSED;
    frame.state = call[1];
    if (!component->is_owner)
        frame.count = 0;
    if (callee < 0)
        return component->is_owner ? marked(m, frame, callee) : frame_of(m, frame);
    frame.text = text ? ABOVE : 0;
    after = frame_of(m, frame);
    below = after < 0 ? after : set_of(m, &after, 1);
    return below < 0 ? below : entered(m, callee, below, text);
}

/* The frame in which a component returns; the text of what is open goes with it. */
int32_t returned(Machine *m, const Frame *frame, int32_t number)
{
    Frame under = m->frames[number];
    if (under.text != ABOVE)
        return number;
    under.text = frame->text;
    return frame_of(m, under);
}

/* The number of characters after a byte that leads to a state; -1 if that and those then owed are too many. */
int64_t counted(const Component *component, const Frame *frame, int32_t state)
{
    int64_t count = frame->count;
    if (!component->begins)
        return count;
    count += component->begins[frame->state];
    if (component->high < 0)
        return count < component->low ? count : component->low;
    return count + component->owed[state] <= component->high ? count : -1;
}

/* Finds the bytes that may come after a set. */
static void find_bytes(Machine *m, int32_t set)
{
    Set *whole = m->sets + set;
    for (int32_t i = 0; i < whole->count; i++) {
        const Frame *frame = m->frames + m->members[whole->begin + i];
        const Component *component = m->components + frame->component;
        const int32_t *row = component->table + component->classes * frame->state;
        for (int byte = 0; byte < 256; byte++) {
            const int32_t state = row[component->class_of[byte]];
            whole->bytes[byte >> 6] |= (uint64_t)(state && counted(component, frame, state) >= 0) << (byte & 63);
        }
    }
}

/* The set of these frames and of those that calls and the ends of components lead to. */
int32_t closed(Machine *m, int32_t set)
{
    int64_t count = m->sets[set].count, done = 0;
    int32_t found;
    if (m->sets[set].closed >= 0)
        return m->sets[set].closed;
    if (!has_room(&m->reached, &m->reached_room, count + 1, sizeof *m->reached))
        return NO_MEMORY;
    memcpy(m->reached, m->members + m->sets[set].begin, (size_t)count * sizeof *m->reached);
    for (; done < count; done++) {
        const Frame frame = m->frames[m->reached[done]];
        const Component component = m->components[frame.component];
        const int64_t begin = component.call_begin[frame.state], end = component.call_begin[frame.state + 1];
        const int64_t more = component.accepting[frame.state] ? m->sets[frame.below].count : 0;
        for (int64_t i = 0; i < more + end - begin; i++) {
            int64_t known = 0;
            found = i < more ? returned(m, &frame, m->members[m->sets[frame.below].begin + i])
                             : called(m, frame, component.calls + 2 * (begin + i - more));
            if (found == REFUSED)
                continue;
            if (found < 0)
                return found;
            while (known < count && m->reached[known] != found)
                known++;
            m->work -= known;
            if (known < count)
                continue;
            if (count >= MOST_FRAMES)
                return TOO_MANY;
            if (!has_room(&m->reached, &m->reached_room, count + 1, sizeof *m->reached))
                return NO_MEMORY;
            m->reached[count++] = found;
        }
    }
    if ((found = set_of(m, m->reached, count)) >= 0) {
        find_bytes(m, found);
        memcpy(m->sets[set].bytes, m->sets[found].bytes, sizeof m->sets[set].bytes);
        m->sets[set].closed = found;
        m->sets[found].closed = found;
    }
    return found;
}

static int32_t merged(Machine *m, const int32_t *items, int64_t count, int32_t depth);

/* One frame instead of some that differ only in where they return to. */
static int32_t merged_frame(Machine *m, const int32_t *items, int64_t count, int32_t depth)
{
    const Frame frame = m->frames[items[0]];
    int32_t *below = NULL, set;
    int64_t total = 0, used = 0;
    for (int64_t i = 0; i < count; i++)
        total += m->sets[m->frames[items[i]].below].count;
    if (!(below = malloc((size_t)total * sizeof *below)))
        return NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        const Set *under = m->sets + m->frames[items[i]].below;
        for (int64_t j = 0; j < under->count; j++) {
            const int32_t item = m->members[under->begin + j];
            int64_t known = 0;
            while (known < used && below[known] != item)
                known++;
            m->work -= known;
            if (known == used)
                below[used++] = item;
        }
    }
    set = depth < MOST_DEPTH ? merged(m, below, used, depth + 1) : TOO_MANY;
    free(below);
    if (set < 0)
        return set;
    return frame_of(m, (Frame){frame.component, frame.state, set, frame.count, frame.names, frame.text, -1, -1, 0, 0});
}

/* The set of some frames, in which those that differ only in where they return to are one. */
static int32_t merged(Machine *m, const int32_t *items, int64_t count, int32_t depth)
{
    int32_t *left, *alike, *result, found = count ? items[0] : 0, raw;
    int64_t used = 0;
    if (count == 1)
        return set_of(m, &found, 1);
    if (!(left = malloc((size_t)(3 * count + 1) * sizeof *left)))
        return NO_MEMORY;
    alike = left + count;
    result = alike + count;
    memcpy(left, items, (size_t)count * sizeof *left);
    /* The stacks of an ambiguous text share most of their frames: each set is merged once. */
    if ((raw = set_of(m, left, count)) < 0 || m->sets[raw].merged >= 0) {
        free(left);
        return raw < 0 ? raw : m->sets[raw].merged;
    }
    for (int64_t i = 0; i < count && found >= 0; i++) {
        const Frame *frame;
        int64_t same = 0, known = 0;
        if (left[i] < 0)
            continue;
        frame = m->frames + left[i];
        m->work -= count - i;
        for (int64_t j = i; j < count; j++) {
            const Frame *other = left[j] < 0 ? NULL : m->frames + left[j];
            if (other && other->component == frame->component && other->state == frame->state &&
                other->count == frame->count && other->names == frame->names && other->text == frame->text &&
                !other->below == !frame->below) {
                alike[same++] = left[j];
                left[j] = -1;
            }
        }
        found = same == 1 ? alike[0] : merged_frame(m, alike, same, depth);
        while (known < used && result[known] != found)
            known++;
        if (known == used)
            result[used++] = found;
    }
    if ((found = found < 0 ? found : set_of(m, result, used)) >= 0)
        m->sets[raw].merged = m->sets[found].merged = found;
    free(left);
    return found;
}

/* The frame after a byte that leads to a state; REFUSED where a string would be too long. */
int32_t moved_frame(Machine *m, Frame frame, int32_t state, uint8_t byte)
{
    const int64_t count = counted(m->components + frame.component, &frame, state);
    if (count < 0)
        return REFUSED;
    frame.state = state;
    frame.count = (int32_t)count;
    if (frame.text > 0 && (frame.text = text_plus(m, frame.text, byte)) < 0)
        return NO_MEMORY;
    return frame_of(m, frame);
}

/* The set after a byte; 0 if there is none. */
int32_t after(Machine *m, int32_t set, uint8_t byte)
{
    const uint64_t key = (uint64_t)set << 8 | byte;
    const int32_t whole = closed(m, set);
    const int32_t *known;
    int32_t found, count = 0;
    int64_t can;
    if (whole < 0)
        return whole;
    if (!(m->sets[set].bytes[byte >> 6] >> (byte & 63) & 1))
        return 0;
    if ((known = map_find(&m->moves, key)))
        return *known;
    if ((m->work -= m->sets[whole].count) < 0)
        return TOO_LONG;
    if (!has_room(&m->todo, &m->todo_room, m->sets[whole].count, sizeof *m->todo))
        return NO_MEMORY;
    for (int32_t i = 0; i < m->sets[whole].count; i++) {
        const Frame frame = m->frames[m->members[m->sets[whole].begin + i]];
        const Component *component = m->components + frame.component;
        const int32_t state = component->table[component->classes * frame.state + component->class_of[byte]];
        if (!state || (found = moved_frame(m, frame, state, byte)) == REFUSED)
            continue;
        if (found < 0)
            return found;
        if ((can = is_doubtful(m, m->frames[found])))
            return can < 0 ? (int32_t)can : DOUBTFUL;
        if ((can = is_productive(m, found)) < 0)
            return (int32_t)can;
        if (can)
            m->todo[count++] = found;
    }
    found = merged(m, m->todo, count, 0);
    if (found >= 0 && !map_put(&m->moves, key, found))
        return NO_MEMORY;
    return found;
}

PUBLIC void hf_guided_machine_end(Machine *m)
{
    void *arrays[] = {m->components, m->tables, m->frames, m->sets, m->members, m->reached, m->todo,
                      m->frame_buckets, m->set_buckets, m->moves.pairs, m->table_of.pairs, m->steps, m->walk,
                      m->leads, m->counting, m->text, m->text_after.pairs, m->written, m->watched, m->seen, m->ahead,
                      m->open, m->item, m->keys, m->choices, m->choices_of.pairs, m};
    for (int64_t i = 0; i < m->table_count; i++)
        free(m->tables[i].owned);
    for (int64_t i = 0; i < m->component_count; i++)
        free(m->components[i].texts);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

/* A machine without components.
 *
 * trie  of the vocabulary; its arrays have to live as long
 * ask   as long too
 * is_least  whether sizes are those of the shortest texts, whatever is there already; else they are enough
 *
 * Returns NULL if there is no memory.
 */
PUBLIC Machine *hf_guided_machine_new(const Trie *trie, Ask ask, int64_t is_least)
{
    Machine *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->child = (const int64_t *)(intptr_t)trie->child;
    m->byte = (const uint8_t *)(intptr_t)trie->byte;
    m->token_start = (const int64_t *)(intptr_t)trie->token_start;
    m->token_ids = (const int64_t *)(intptr_t)trie->token_ids;
    m->parent = (const int64_t *)(intptr_t)trie->parent;
    m->node_of = (const int64_t *)(intptr_t)trie->node_of;
    m->longest = trie->longest;
    m->size = trie->size;
    m->letters = (const int32_t *)(intptr_t)trie->letters;
    m->below = (const int32_t *)(intptr_t)trie->below;
    m->named = (const int64_t *)(intptr_t)trie->named;
    m->named_count = trie->named_count;
    m->ask = ask;
    m->is_least = is_least != 0;
    m->text = malloc((size_t)m->longest + 1);
    /* The empty set is number 0, and no text. */
    if (!m->text || set_of(m, NULL, 0) != 0 || !has_room(&m->written, &m->written_room, 3, sizeof *m->written)) {
        hf_guided_machine_end(m);
        return NULL;
    }
    memset(m->written, 0, 3 * sizeof *m->written);
    m->written[EMPTY_TEXT].flat = -1;
    m->written_count = 3;
    return m;
}

/* Bytes that a machine holds. */
PUBLIC int64_t hf_guided_machine_bytes(const Machine *m)
{
    return m->component_room * (int64_t)sizeof(Component) + m->table_room * (int64_t)sizeof(Table) +
           m->frame_room * (int64_t)sizeof(Frame) + m->set_room * (int64_t)sizeof(Set) +
           (m->member_room + m->frame_bucket_room + m->set_bucket_room) * 4 +
           (m->moves.room + m->table_of.room + m->text_after.room) * (int64_t)sizeof(Pair) +
           m->written_room * (int64_t)sizeof(Written) + m->keys_room + m->choices_room * (int64_t)sizeof(Choices) +
           m->choices_of.room * (int64_t)sizeof(Pair) + m->derived_bytes;
}

/* What is missing, after a function has said so. */
PUBLIC int64_t hf_guided_machine_missing(const Machine *m)
{
    return m->missing;
}

/* Writes the calls of a component, as `Component` has them: those of one state together.
 *
 * after_calls  (callees, states) the state after each call; 0 where there is none
 * call_begin   (states + 1)
 * calls        two numbers for each call of each state
 */
PUBLIC void hf_guided_machine_calls(const int32_t *after_calls, int64_t callees, int64_t states, int64_t *call_begin,
                                    int32_t *calls)
{
    memset(call_begin, 0, (size_t)(states + 1) * sizeof *call_begin);
    for (int64_t i = 0; i < callees; i++)
        for (int64_t state = 0; state < states; state++)
            call_begin[state] += after_calls[states * i + state] != 0;
    for (int64_t state = 1; state <= states; state++)
        call_begin[state] += call_begin[state - 1];
    for (int64_t i = callees - 1; i >= 0; i--) /* each state's begin at the end, and go down */
        for (int64_t state = 0; state < states; state++)
            if (after_calls[states * i + state]) {
                int32_t *call = calls + 2 * --call_begin[state];
                call[0] = (int32_t)i;
                call[1] = after_calls[states * i + state];
            }
}

/* Adds a component, whose arrays have to live as long; again once its exits are known. Returns 0, or that there is no
 * memory. */
PUBLIC int64_t hf_guided_machine_component(Machine *m, int64_t number, const Component *component)
{
    const int64_t count = m->component_count;
    Component taken = *component;
    taken.texts = NULL;
    if (taken.is_owner == OBJECT && take_names(m, &taken))
        return NO_MEMORY;
    m->has_items |= taken.is_owner == ARRAY;
    m->compares_members |= taken.is_owner == ARRAY && !(taken.compared & ORDERED);
    if (!has_room(&m->components, &m->component_room, number + 1, sizeof *m->components)) {
        free(taken.texts);
        return NO_MEMORY;
    }
    if (number >= count) {
        memset(m->components + count, 0, (size_t)(number + 1 - count) * sizeof *m->components);
        m->component_count = number + 1;
    }
    free(m->components[number].texts);
    m->components[number] = taken;
    return 0;
}

PUBLIC int64_t hf_guided_machine_table(Machine *m, const Table *table)
{
    if (!has_room(&m->tables, &m->table_room, m->table_count + 1, sizeof *m->tables) ||
        !map_put(&m->table_of, (uint64_t)m->missing + 1, (int32_t)m->table_count))
        return NO_MEMORY;
    m->tables[m->table_count++] = *table;
    return 0;
}

/* Adds to the table of a state where its tokens end that stay in the component; the arrays have to live as long. */
PUBLIC void hf_guided_machine_stay(Machine *m, int64_t component, int64_t state, const Stay *stay)
{
    m->tables[*map_find(&m->table_of, table_key(component, state, 0))].stay = *stay;
}
