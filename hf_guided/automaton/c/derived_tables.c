/* Derives the table of a state from that of another state.
 *
 * The states along a declared name differ from the inside of any other name in few tokens, so their tables differ at
 * few nodes. component_walk.py calls these loops too, for what they do not read alone.
 */
#include "frames.h"

enum { MOST_DIFFERENT = 16384 }; /* nodes at which two states differ, as in component_walk.py */
enum { MOST_NEW = 256 };         /* states in which tokens leave, and did not in the other table; likewise */

/* The nodes of a trie at which two states of an automaton have led to different states, breadth first.
 *
 * nodes     (room) the first is given, where both begin
 * ours      (room) the state at each node, the first is given; 0 where this one does not lead there
 * theirs    (room) likewise of the other one
 *
 * Returns how many there are, the given one too; -1 if there is no room for them.
 */
static int64_t differ(const int64_t *child, const uint8_t *byte, const uint8_t *class_of, const int32_t *table,
                      int64_t classes, int64_t room, int32_t *nodes, int32_t *ours, int32_t *theirs)
{
    int64_t found = 1;
    for (int64_t done = 0; done < found; done++) {
        const int64_t end = child[nodes[done] + 1];
        const int32_t *our_row = table + classes * ours[done], *their_row = table + classes * theirs[done];
        for (int64_t node = child[nodes[done]]; node < end; node++) {
            const int32_t our = our_row[class_of[byte[node]]], their = their_row[class_of[byte[node]]];
            if (our != their) {
                if (found == room)
                    return -1;
                nodes[found] = (int32_t)node;
                ours[found] = our;
                theirs[found++] = their;
            }
        }
    }
    return found;
}

/* As `differ`, and then: changes the mask of the other state to that of this one, and keeps only the nodes where
 * longer tokens may leave the automaton.
 *
 * leaves       (state count) whether anything but bytes may come
 * token_start  (nodes + 1) where the tokens of each node begin
 * token_ids    their ids
 * words        the mask
 *
 * Returns how many nodes are kept, from the first place on; in `ours` and `theirs` is 0 where that one does not leave.
 * -1 if there is no room.
 */
PUBLIC int64_t hf_guided_change(const int64_t *child, const uint8_t *byte, const uint8_t *class_of,
                                const int32_t *table, int64_t classes, int64_t room, int32_t *nodes, int32_t *ours,
                                int32_t *theirs, const uint8_t *leaves, const int64_t *token_start,
                                const int64_t *token_ids, uint32_t *words)
{
    const int64_t found = differ(child, byte, class_of, table, classes, room, nodes, ours, theirs);
    int64_t kept = 0;
    for (int64_t i = 1; i < found; i++) {
        const int32_t node = nodes[i];
        const int has_longer = child[node] < child[node + 1];
        const int32_t our = has_longer && leaves[ours[i]] ? ours[i] : 0;
        const int32_t their = has_longer && leaves[theirs[i]] ? theirs[i] : 0;
        for (int64_t at = token_start[node]; (!ours[i] || !theirs[i]) && at < token_start[node + 1]; at++)
            words[token_ids[at] >> 5] ^= (uint32_t)1 << (token_ids[at] & 31);
        if (our || their)
            nodes[kept] = node, ours[kept] = our, theirs[kept++] = their;
    }
    return found < 0 ? found : kept;
}

/* Merges the nodes at which the other state reaches a state with the differences: those at which this one does.
 *
 * Returns how many are written.
 */
static int64_t merged_nodes(const int32_t *base, int64_t count, int64_t state, const int32_t *nodes,
                            const int32_t *ours, const int32_t *theirs, int64_t differences, int32_t *written)
{
    int64_t number = 0, place = 0;
    for (int64_t i = 0; i < differences; i++) {
        if (ours[i] != state && theirs[i] != state)
            continue;
        while (place < count && base[place] < nodes[i])
            written[number++] = base[place++];
        if (theirs[i] == state)
            place++;
        else
            written[number++] = nodes[i];
    }
    while (place < count)
        written[number++] = base[place++];
    return number;
}

/* Writes the nodes where tokens leave from this state, apart for each state there.
 *
 * base         (3, groups) the arrays `left`, `left_count` and `left_in` of the table of the other state
 * nodes, ours, theirs  (differences) what `hf_guided_change` has kept
 * room         groups and new states at most
 * written      three such arrays, of `room` numbers each, and then the nodes
 *
 * Returns how many groups are written; -1 if there are too many states.
 */
PUBLIC int64_t hf_guided_write_leaving(const int64_t *base, int64_t groups, const int32_t *nodes, const int32_t *ours,
                                       const int32_t *theirs, int64_t differences, int64_t room, int64_t *written)
{
    int64_t *left = written, *count = written + room, *states = written + 2 * room, all = groups, kept = 0;
    int32_t *next = (int32_t *)(written + 3 * room);
    if (groups) /* without one there may be no array */
        memcpy(states, base + 2 * groups, (size_t)groups * sizeof *states);
    for (int64_t i = 0; i < differences; i++) {
        int64_t place = 0;
        while (ours[i] && place < all && states[place] != ours[i])
            place++;
        if (ours[i] && place == all) {
            if (all == room)
                return -1;
            states[all++] = ours[i];
        }
    }
    for (int64_t j = 0; j < all; j++) {
        const int32_t *known = j < groups ? (const int32_t *)(intptr_t)base[j] : NULL;
        const int64_t number = merged_nodes(known, known ? base[groups + j] : 0, states[j], nodes, ours, theirs,
                                            differences, next);
        if (number) {
            left[kept] = (int64_t)(intptr_t)next, count[kept] = number, states[kept++] = states[j];
            next += number;
        }
    }
    return kept;
}

/* Adds the table of the state of a frame, from the root of the trie, if it can be derived from that of a string's body.
 *
 * scratch  three numbers for each node of the trie
 *
 * Returns 0, or what is missing.
 */
int64_t derive_table(Machine *m, const Frame *frame, int64_t word_count, int32_t *scratch)
{
    const Component *c = m->components + frame->component;
    const int64_t body = c->begins ? 0 : hf_guided_body(c->class_of, c->table, c->classes, frame->state);
    const int64_t nodes = 1 + m->below[0], most = nodes < MOST_DIFFERENT ? nodes : MOST_DIFFERENT;
    const size_t word_bytes = (size_t)(word_count + word_count % 2) * sizeof(uint32_t);
    int32_t *ours = scratch + nodes, *theirs = scratch + 2 * nodes, *known;
    int64_t differences, room, count = 0, *left;
    uint8_t *block, *larger;
    Table table;
    if (!body || body == frame->state)
        return 0;
    if (!(known = map_find(&m->table_of, table_key(frame->component, body, 0)))) {
        m->missing = (int64_t)table_key(frame->component, body, 0) - 1;
        return NEEDS_TABLE;
    }
    table = m->tables[*known];
    if (!table.words)
        return 0;
    if (!(block = malloc(word_bytes)))
        return NO_MEMORY;
    memcpy(block, table.words, (size_t)word_count * sizeof(uint32_t));
    scratch[0] = 0, ours[0] = frame->state, theirs[0] = (int32_t)body;
    differences = hf_guided_change(m->child, m->byte, c->class_of, c->table, c->classes, most, scratch, ours, theirs,
                                   c->leaves, m->token_start, m->token_ids, (uint32_t *)(void *)block);
    if (differences < 0) {
        free(block);
        return 0;
    }
    for (int64_t j = 0; j < table.leaving; j++)
        count += table.left_count[j];
    room = table.leaving + (differences < MOST_NEW ? differences : MOST_NEW);
    const size_t bytes =
        word_bytes + (size_t)(3 * room) * sizeof *left + (size_t)(count + differences) * sizeof(int32_t);
    if (!(larger = realloc(block, bytes))) {
        free(block);
        return NO_MEMORY;
    }
    left = (int64_t *)(void *)(larger + word_bytes);
    /* The three arrays of a table are one after the other. */
    table.leaving = hf_guided_write_leaving(table.left, table.leaving, scratch, ours, theirs, differences, room, left);
    table.left = left, table.left_count = left + room, table.left_in = left + 2 * room;
    table.words = (const uint32_t *)(void *)larger;
    table.owned = larger;
    table.stay.groups = -1;
    m->missing = (int64_t)table_key(frame->component, frame->state, 0) - 1;
    if (table.leaving < 0 || hf_guided_machine_table(m, &table)) {
        free(larger);
        return table.leaving < 0 ? 0 : NO_MEMORY;
    }
    m->derived_bytes += (int64_t)bytes;
    return 0;
}
