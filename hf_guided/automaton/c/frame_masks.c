/* Finds the tokens that may come after a text that is read by a network: see frame_machine.py.
 *
 * Where few tokens may come they are found one by one, and elsewhere by tables of what stays in a component.
 *
 * With a limit a token stays out where the text could not be finished in the tokens that are left after it. The bytes
 * to the end bound these tokens: they are counted only where there are not as many left.
 */
#include "frames.h"

enum { MANY_BYTES = 100 };   /* a string goes on with some more */
enum { MANY_NODES = 4000 };  /* below a node: that many take longer one by one than a table from there on */
enum { MOST_NODES = 50000 }; /* reached one by one beside tables, where the same may be reached again and again */

static void add_tokens(const Machine *m, int32_t node, uint32_t *words)
{
    for (int64_t at = m->token_start[node]; at < m->token_start[node + 1]; at++)
        words[m->token_ids[at] >> 5] |= (uint32_t)1 << (m->token_ids[at] & 31);
}

/* Whether the limit leaves as many tokens, and the one that ends the text. */
static int is_within(Limit *limit, int64_t needed)
{
    if (needed + 1 > limit->most)
        limit->most = needed + 1;
    return needed + 1 <= limit->left;
}

/* Whether a text that is in a set can be finished within the limit: 1, 0, or what is missing. */
static int64_t fits(Machine *m, int32_t set, Limit *limit)
{
    int64_t needed;
    if (!limit)
        return 1;
    needed = set_size(m, set);
    if (needed >= limit->left)
        needed = set_needed(m, set);
    return needed < 0 ? needed : is_within(limit, needed);
}

/* Whether a text in one state of a component can only go on by the bytes that its table has, each in one way. */
static int is_alone(const Machine *m, const Component *component, int32_t below, int32_t state)
{
    return !component->begins && component->call_begin[state] == component->call_begin[state + 1] &&
           !(component->accepting[state] && m->sets[below].count);
}

/* The state of the one frame of a set, where it is alone: see `is_alone`. Else -1. */
static int32_t lone_state(const Machine *m, int32_t set)
{
    const Frame *frame = m->frames + m->members[m->sets[set].begin];
    const int is_one = m->sets[set].count == 1 && !frame->text;
    return is_one && is_alone(m, m->components + frame->component, frame->below, frame->state) ? frame->state : -1;
}

/* Adds the tokens below a node at which a text is in a set.
 *
 * Most of them stay in one component, and then its table is enough: no set is needed.
 *
 * state  of the component of the one frame in the set, in its place and without what it leads to; or -1
 * stack  scratch: three numbers for each node of the trie
 * most   how many nodes may be reached; less those that were
 *
 * Returns 0, or what is missing.
 */
static int64_t follow(Machine *m, int32_t node, int32_t set, int32_t state, uint32_t *words, int32_t *stack,
                      int64_t *most, Limit *limit)
{
    int64_t depth = 3;
    stack[0] = node, stack[1] = set, stack[2] = state;
    while (depth && *most >= 0) {
        Frame frame = {0};
        const Component *component = NULL;
        const int32_t *row = NULL;
        depth -= 3;
        node = stack[depth], set = stack[depth + 1], state = stack[depth + 2];
        if (state < 0)
            state = lone_state(m, set);
        if (state >= 0) {
            frame = m->frames[m->members[m->sets[set].begin]];
            component = m->components + frame.component;
            row = component->table + component->classes * state;
        }
        for (int64_t child = m->child[node]; child < m->child[node + 1]; child++) {
            int32_t next = row ? row[component->class_of[m->byte[child]]] : after(m, set, m->byte[child]), there = set;
            if (next < 0)
                return next;
            if (!next)
                continue;
            --*most;
            if (row && ((limit && has_token(m, child)) || !is_alone(m, component, frame.below, next))) {
                next = moved_frame(m, frame, next, m->byte[child]);
                next = next < 0 ? next : set_of(m, &next, 1);
                if (next < 0)
                    return next;
                there = next, next = -1;
            } else if (!row)
                there = next, next = -1;
            if (has_token(m, child)) {
                const int64_t fit = fits(m, there, limit);
                if (fit < 0)
                    return fit;
                if (fit)
                    add_tokens(m, (int32_t)child, words);
            }
            if (m->child[child] < m->child[child + 1]) {
                stack[depth] = (int32_t)child, stack[depth + 1] = there, stack[depth + 2] = next;
                depth += 3;
            }
        }
    }
    return 0;
}

/* The set of where a frame leads without a byte, itself aside. */
static int32_t beyond(Machine *m, int32_t frame)
{
    int32_t set = set_of(m, &frame, 1), whole, count = 0;
    if (set < 0 || m->sets[set].beyond >= 0)
        return set < 0 ? set : m->sets[set].beyond;
    if ((whole = closed(m, set)) < 0)
        return whole;
    if (!has_room(&m->todo, &m->todo_room, m->sets[whole].count, sizeof *m->todo))
        return NO_MEMORY;
    for (int32_t i = 0; i < m->sets[whole].count; i++) {
        const int32_t item = m->members[m->sets[whole].begin + i];
        if (item != frame)
            m->todo[count++] = item;
    }
    whole = set_of(m, m->todo, count);
    if (whole >= 0)
        m->sets[set].beyond = whole;
    return whole;
}

/* How many characters must and may still come. `high` is -1 if every token, with what it then owes, has room.
 *
 * Returns whether the bounds refuse any token.
 */
static int find_bounds(const Machine *m, const Frame *frame, int64_t *low, int64_t *high)
{
    const Component *component = m->components + frame->component;
    const int is_inside = is_counting(m, frame);
    *low = is_inside && component->low > frame->count ? component->low - frame->count : 0;
    *high = is_inside && component->high >= 0 ? component->high - frame->count : -1;
    if (*high >= m->longest + component->most_owed)
        *high = -1;
    return *low || *high >= 0;
}

/* The set that stands for all with the same mask: far from both bounds all counts are the same, and what is open that can
 * become nothing known. */
int32_t same_mask(Machine *m, int32_t set)
{
    const int32_t begin = (int32_t)m->sets[set].begin, count = m->sets[set].count;
    int32_t same = m->sets[set].same_mask;
    const int has_true_texts = same >= 0 && m->sets[same].is_doubtful;
    if (same >= 0 && !has_true_texts)
        return same;
    if (!has_room(&m->todo, &m->todo_room, count, sizeof *m->todo))
        return NO_MEMORY;
    for (int32_t i = 0; i < count; i++) {
        Frame frame = m->frames[m->members[begin + i]];
        int64_t low, high;
        if (!find_bounds(m, &frame, &low, &high) && is_counting(m, &frame))
            frame.count = (int32_t)m->components[frame.component].low;
        if (frame.text > 0 && !has_true_texts && !(m->compares_members && m->named_count)) {
            const int64_t watched = is_watched(m, frame);
            if (watched < 0)
                return (int32_t)watched;
            frame.text = watched ? frame.text : NEW_TEXT;
        }
        if ((m->todo[i] = frame_of(m, frame)) < 0)
            return NO_MEMORY;
    }
    if ((same = set_of(m, m->todo, count)) < 0)
        return same;
    m->sets[set].same_mask = same;
    return m->sets[same].is_doubtful && !has_true_texts ? same_mask(m, set) : same;
}

/* Whether a set has many tokens, as in a string: known, or expected because many bytes may come. */
static int is_large(const Machine *m, int32_t set)
{
    int bytes = 0;
    for (int byte = 0; byte < 256; byte++)
        bytes += m->sets[set].bytes[byte >> 6] >> (byte & 63) & 1;
    if (bytes >= MANY_BYTES)
        return 1;
    for (int32_t i = 0; i < m->sets[set].count; i++)
        if (is_counting(m, m->frames + m->members[m->sets[set].begin + i]))
            return 1;
    return m->sets[set].is_large;
}

/* How many nodes of the trie are below a node, by those bytes that move a frame in its component. */
static int64_t nodes_below(const Machine *m, const Frame *frame, int32_t node)
{
    const Component *component = m->components + frame->component;
    const int32_t *row = component->table + component->classes * frame->state;
    int64_t below = 0;
    for (int64_t child = m->child[node]; child < m->child[node + 1]; child++)
        below += row[component->class_of[m->byte[child]]] ? 1 + m->below[child] : 0;
    return below;
}

static int64_t add_by_tables(Machine *m, int32_t whole, int32_t node, uint32_t *words, int64_t word_count,
                             int32_t *stack, int64_t *most, Limit *limit);

/* The text at a node below another one, where the other has a text; or that there is no memory. */
static int32_t text_at(Machine *m, int32_t text, int32_t node, int32_t below)
{
    if (below == node)
        return text;
    text = text_at(m, text, node, (int32_t)m->parent[below]);
    return text < 0 ? text : text_plus(m, text, m->byte[below]);
}

/* The text at a watched node, among the last `count`; 0 if the node is not watched. */
static int32_t watched_text(const Machine *m, const int64_t begin, int64_t count, int32_t node)
{
    int64_t low = begin, high = begin + count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (m->watched[middle].node < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < begin + count && m->watched[low].node == node ? m->frames[m->watched[low].frame].text : 0;
}

/* Whether the tokens below a node are many for a set that is closed: then tables are faster. */
static int has_many(const Machine *m, int32_t whole, int32_t node)
{
    int64_t below = 0;
    if (is_large(m, whole))
        return 1;
    for (int32_t i = 0; i < m->sets[whole].count && below < MANY_NODES; i++)
        below += nodes_below(m, m->frames + m->members[m->sets[whole].begin + i], node);
    return below >= MANY_NODES;
}

/* Adds the tokens that go on below a node where the text is in a set. Returns 0, or what is missing. */
static int64_t add_onwards(Machine *m, int32_t onwards, int32_t node, uint32_t *words, int64_t word_count,
                           int32_t *stack, int64_t *most, Limit *limit)
{
    const int32_t whole = closed(m, onwards);
    int64_t child = m->child[node];
    if (whole < 0)
        return whole;
    while (child < m->child[node + 1] && !(m->sets[whole].bytes[m->byte[child] >> 6] >> (m->byte[child] & 63) & 1))
        child++;
    if (child == m->child[node + 1]) /* as for most of thousands of nodes */
        return 0;
    return m->below[node] >= MANY_NODES && has_many(m, whole, node)
               ? add_by_tables(m, whole, node, words, word_count, stack, most, limit)
               : follow(m, node, onwards, -1, words, stack, most, limit);
}

/* The set of where a frame of one component leads when it leaves it. */
static int32_t onwards_of(Machine *m, Frame frame)
{
    const int32_t number = frame_of(m, frame);
    return number < 0 ? number : beyond(m, number);
}

/* Adds the tokens that leave a component in a state, and then fit.
 *
 * frame      there
 * node       where they were in the component first
 * watched    (2) the first of the watched nodes below that one, and how many there are
 * left       (count) the nodes where they leave
 * low, high  see `find_bounds`
 * most       see `follow`; tokens are left out where it is not enough
 *
 * Returns 0, or what is missing.
 */
static int64_t add_leaving(Machine *m, Frame frame, int32_t node, const int64_t *watched, const int32_t *left,
                           int64_t count, int64_t low, int64_t high, uint32_t *words, int64_t word_count,
                           int32_t *stack, int64_t *most, Limit *limit)
{
    int64_t status = 0;
    const int32_t text = frame.text;
    const int64_t *characters = is_counting(m, &frame) ? m->components[frame.component].characters : NULL;
    int32_t onwards = 0;
    if (characters)
        frame.count = (int32_t)m->components[frame.component].low; /* the bounds say which may end */
    if (text <= 0 && (onwards = onwards_of(m, frame)) <= 0) /* equal for all nodes */
        return onwards;
    for (int64_t at = 0; at < count && !status && *most >= 0; at++) {
        const int64_t more = characters ? characters[left[at]] - characters[node] : 0;
        int32_t known = text > 0 ? watched_text(m, watched[0], watched[1], left[at]) : 0;
        if (more < low || (high >= 0 && more > high))
            continue;
        if (text > 0) {
            frame.text = known ? known : NEW_TEXT;
            onwards = onwards_of(m, frame);
        }
        status = onwards > 0 ? add_onwards(m, onwards, left[at], words, word_count, stack, most, limit) : onwards;
        if (status == DOUBTFUL && frame.text == NEW_TEXT && text != NEW_TEXT) {
            if ((frame.text = text_at(m, text, node, left[at])) < 0)
                return NO_MEMORY;
            onwards = onwards_of(m, frame);
            status = onwards > 0 ? add_onwards(m, onwards, left[at], words, word_count, stack, most, limit) : onwards;
        }
    }
    return status;
}

/* The tokens that a frame needs after a token that leads to a state of its component; or what is missing. */
static int64_t needed_in(Machine *m, Frame frame, int32_t state, int64_t characters)
{
    const Component *component = m->components + frame.component;
    int64_t count = frame.count + characters;
    int32_t to;
    if (component->begins && component->high < 0 && count > component->low)
        count = component->low;
    frame.state = state;
    frame.count = (int32_t)count;
    to = frame_of(m, frame);
    return to < 0 ? to : frame_needed(m, to);
}

/* Adds the tokens that stay in the component of a frame and fit the limit.
 *
 * high  see `find_bounds`
 *
 * Returns 0, or what is missing.
 */
static int64_t add_fitting(Machine *m, Frame frame, const Stay *stay, int64_t high, uint32_t *words,
                           int64_t word_count, Limit *limit)
{
    const Component component = m->components[frame.component];
    const int is_counted = is_counting(m, &frame), depends_on_count = is_counted && frame.count < component.low;
    for (int64_t group = 0, at = 0; group < stay->groups; at = stay->ends[group++]) {
        const int32_t state = stay->states[group];
        const uint32_t *all = (const uint32_t *)(intptr_t)stay->words[group];
        int64_t needed = depends_on_count ? 0 : needed_in(m, frame, state, 0);
        if (needed < 0)
            return needed;
        if (!depends_on_count && !is_within(limit, needed))
            continue;
        if (all && !depends_on_count && high < 0) {
            for (int64_t i = 0; i < word_count; i++)
                words[i] |= all[i];
            continue;
        }
        for (; at < stay->ends[group]; at++) {
            const int32_t node = stay->nodes[at];
            const int64_t characters = is_counted ? component.characters[node] : 0;
            if (high >= 0 && characters + component.owed[state] > high)
                continue;
            if (depends_on_count && (needed = needed_in(m, frame, state, characters)) < 0)
                return needed;
            if (!depends_on_count || is_within(limit, needed))
                add_tokens(m, node, words);
        }
    }
    return 0;
}

/* Whether the limit may refuse a token that stays in the component of a frame: 1, 0, or what is missing. */
static int64_t may_exceed(Machine *m, Frame frame, Limit *limit)
{
    const Component *component = m->components + frame.component;
    const int64_t below = component->exits ? set_size(m, frame.below) : NEEDS_EXITS;
    int64_t most = component->most_size + (component->begins ? component->low : 0) + below;
    if (!component->exits)
        m->missing = frame.component;
    if (below < 0)
        return below;
    if (component->legs)
        for (int64_t i = 0; i < component->name_count; i++)
            most += component->legs[i];
    if (frame.text > 0 || component->is_owner)
        most += (1 + names_to_come(m, component, frame.names)) * (component->most_size + m->deepest);
    if (most < limit->left)
        is_within(limit, most);
    return most >= limit->left;
}

/* Adds the tokens that stay in the component of a frame.
 *
 * table  of the frame's state
 * high   see `find_bounds`; with the characters before the node of the table
 */
static void add_staying(Machine *m, const Table *table, int64_t high, uint32_t *words, int64_t word_count)
{
    if (high >= 0) {
        const uint32_t *short_ones = table->at_most + word_count * (high < table->most ? high : table->most - 1);
        for (int64_t j = 0; j < word_count; j++)
            words[j] |= table->words[j] & short_ones[j];
        return;
    }
    for (int64_t j = 0; table->words && j < word_count; j++)
        words[j] |= table->words[j];
    for (int64_t j = 0; !table->words && j < table->node_count; j++)
        add_tokens(m, table->nodes[j], words);
}

/* Whether a token that ends at a watched node fits: its name can become a new one, and the text can be finished.
 *
 * Returns 1, 0, or what is missing.
 */
static int64_t fits_there(Machine *m, int32_t number, Limit *limit)
{
    int64_t status = is_productive(m, number);
    int32_t set;
    if (status <= 0 || (set = set_of(m, &number, 1)) < 0)
        return status <= 0 ? status : set;
    return fits(m, set, limit);
}

/* Adds the tokens that stay in the component of a frame: those at watched nodes only where they fit.
 *
 * Returns 0, or what is missing: then only tokens that fit are added.
 */
static int64_t add_staying_names(Machine *m, Frame frame, const Table *table, const int64_t *watched, int exceeds,
                                 int64_t high, uint32_t *words, int64_t word_count, Limit *limit)
{
    uint32_t *before = watched[1] ? malloc((size_t)word_count * sizeof *before) : NULL;
    int64_t status = 0, fit;
    Frame any = frame;
    if (watched[1] && !before)
        return NO_MEMORY;
    if (before)
        memcpy(before, words, (size_t)word_count * sizeof *words);
    any.text = NEW_TEXT;
    if (exceeds)
        status = add_fitting(m, any, &table->stay, high, words, word_count, limit);
    else
        add_staying(m, table, high, words, word_count);
    for (int64_t i = watched[0]; i < watched[0] + watched[1] && !status; i++) {
        const Watched there = m->watched[i];
        if (!has_token(m, there.node))
            continue;
        for (int64_t at = m->token_start[there.node]; at < m->token_start[there.node + 1]; at++) {
            const int64_t token = m->token_ids[at];
            const uint32_t bit = (uint32_t)1 << (token & 31);
            words[token >> 5] = (words[token >> 5] & ~bit) | (before[token >> 5] & bit);
        }
        if ((fit = fits_there(m, there.frame, limit)) < 0)
            status = fit;
        else if (fit)
            add_tokens(m, there.node, words);
    }
    if (before && status)
        memcpy(words, before, (size_t)word_count * sizeof *words);
    free(before);
    return status;
}

/* A frame where tokens leave its component in a state, no characters counted. */
static Frame left_frame(const Machine *m, Frame frame, int64_t state)
{
    frame.state = (int32_t)state;
    if (!m->components[frame.component].is_owner)
        frame.count = 0;
    return frame;
}

/* Adds the tokens that go on at a node of the trie, where the text is in a set, by the tables of its frames.
 *
 * most  see `follow`; tokens are left out where it is not enough
 *
 * Returns 0, or what is missing.
 */
static int64_t add_by_tables(Machine *m, int32_t whole, int32_t node, uint32_t *words, int64_t word_count,
                             int32_t *stack, int64_t *most, Limit *limit)
{
    for (int32_t i = 0; i < m->sets[whole].count && *most >= 0; i++) {
        int32_t number = m->members[m->sets[whole].begin + i];
        const Frame frame = m->frames[number];
        const uint64_t key = table_key(frame.component, frame.state, node);
        int32_t *known = map_find(&m->table_of, key);
        const int64_t below = known ? INT64_MAX : nodes_below(m, &frame, node);
        int64_t low, high, status = 0, exceeds = 0;
        Table table = {0};
        const int is_bounded = find_bounds(m, &frame, &low, &high);
        /* Inside a character its end is not counted: so the tables do not know what there is room for. */
        int is_followed = is_bounded && !m->components[frame.component].begins[frame.state];
        int64_t watched[2] = {m->watched_count, 0};
        const int is_few = below < m->few && !m->components[frame.component].begins;
        if (!below)
            continue;
        if (is_few)
            is_followed = 1;
        if (!is_followed && !known && !node) {
            if ((status = derive_table(m, &frame, word_count, stack)))
                return status;
            known = map_find(&m->table_of, key);
        }
        if (!is_followed && !known) {
            m->missing = (int64_t)(key - 1);
            return NEEDS_TABLE;
        }
        if (!is_followed) {
            table = m->tables[*known];
            is_followed =
                high >= 0 && (!table.at_most || (m->components[frame.component].most_owed && high >= table.most));
        }
        if (!is_followed && (watched[1] = find_watched(m, frame, node)) < 0)
            return watched[1];
        if (!is_followed && limit && (exceeds = may_exceed(m, frame, limit)) < 0)
            return exceeds;
        is_followed |= exceeds && node;
        if (!is_followed && exceeds && table.stay.groups < 0) {
            m->missing = (int64_t)frame.component << 32 | frame.state;
            return NEEDS_STAY;
        }
        if (!is_followed && frame.text > 0) {
            status = add_staying_names(m, frame, &table, watched, exceeds != 0,
                                       high < 0 ? high : high + m->components[frame.component].characters[node],
                                       words, word_count, limit);
            is_followed = status == DOUBTFUL; /* the ways out depend on what the tokens make of what is open */
        }
        if (is_followed) {
            if ((number = set_of(m, &number, 1)) < 0)
                return number;
            m->watched_count = watched[0];
            if ((status = follow(m, node, number, is_few && !frame.text ? frame.state : -1, words, stack, most, limit)))
                return status;
            continue;
        }
        if (frame.text <= 0 && exceeds)
            status = add_fitting(m, frame, &table.stay, high, words, word_count, limit);
        else if (frame.text <= 0)
            add_staying(m, &table, high < 0 ? high : high + m->components[frame.component].characters[node], words,
                        word_count);
        for (int64_t j = 0; j < table.leaving && !status; j++)
            status = add_leaving(m, left_frame(m, frame, table.left_in[j]), node, watched,
                                 (const int32_t *)(intptr_t)table.left[j], table.left_count[j], low, high, words,
                                 word_count, stack, most, limit);
        m->watched_count = watched[0];
        if (status)
            return status;
    }
    return 0;
}

/* See `hf_guided_machine_mask`. */
static int64_t find_mask(Machine *m, int64_t set, uint32_t *words, int64_t word_count, int32_t *stack, int64_t most,
                         Limit *limit)
{
    const int32_t whole = closed(m, (int32_t)set);
    int64_t beside = MOST_NODES, any = INT64_MAX, status;
    if (whole < 0)
        return whole;
    m->few = most;
    memset(words, 0, (size_t)word_count * sizeof *words);
    if (!is_large(m, whole)) {
        status = follow(m, 0, whole, -1, words, stack, &most, limit);
        if (status || most >= 0)
            return status;
        m->sets[whole].is_large = 1;
        memset(words, 0, (size_t)word_count * sizeof *words);
    }
    status = add_by_tables(m, whole, 0, words, word_count, stack, &beside, limit);
    return status || beside >= 0 ? status : follow(m, 0, whole, -1, words, stack, &any, limit);
}

/* Reads the tokens with a whole name of an object: a second member of the same name takes the place of the first, so an
 * item may become one of those known after all. Returns 0, or what is missing. */
static int64_t read_named(Machine *m, int32_t set, uint32_t *words, Limit *limit)
{
    int64_t fit = 0;
    for (int64_t i = 0; i < m->named_count && fit >= 0; i++) {
        const int64_t token = m->named[i];
        const int32_t next = after_token(m, set, token);
        if (next <= 0 || (fit = fits(m, next, limit)) <= 0)
            words[token >> 5] &= ~((uint32_t)1 << (token & 31));
        else
            words[token >> 5] |= (uint32_t)1 << (token & 31);
        fit = next < 0 ? next : fit;
    }
    return fit < 0 ? fit : 0;
}

/* Writes the mask of the tokens that may come after a text, whose set is kept with the limit that refuses none.
 *
 * words  (word_count) written; undefined where something is missing
 * stack  scratch: three numbers for each node of the trie; of no more than `sparse` words that are not 0 it then has the
 *        places, as numbers of 64 bits
 * most   the largest number of nodes in which tokens are found one by one, rather than by tables
 * limit  or NULL, where any number of tokens may follow
 *
 * Returns how many words are not 0, or what is missing.
 */
PUBLIC int64_t hf_guided_machine_mask(Machine *m, int64_t set, uint32_t *words, int64_t word_count, int32_t *stack,
                                      int64_t sparse, int64_t most, Limit *limit)
{
    int64_t status, *places = (int64_t *)stack, count = 0;
    m->work = MOST_WORK;
    m->watched_count = 0;
    status = find_mask(m, set, words, word_count, stack, most, limit);
    if (!status && m->compares_members)
        status = read_named(m, (int32_t)set, words, limit);
    if (status == DOUBTFUL)
        m->sets[set].is_doubtful = 1;
    if (!status && limit)
        m->sets[set].enough = (int32_t)(limit->most < INT32_MAX ? limit->most + 1 : INT32_MAX);
    for (int64_t i = 0; i < word_count && !status; i++)
        if (words[i] && count++ < sparse)
            places[count - 1] = i;
    return status ? status : count;
}
