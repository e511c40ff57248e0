/* Tables that are made from the one of another state.
 *
 * Along the name of a declared member each state is one of its own, but nearly all tokens do from it what they do
 * inside any other name: so its table is that of the other names, with a few changes.
 */
#include "frames.h"

enum { MANY_BYTES = 24 };        /* that lead to one state; with fewer a walk is short: as in component_walk.py */
enum { MOST_DIFFERENT = 16384 }; /* nodes that tell two states apart; where there are more, a walk takes as long */

/* The nodes at which a state is reached, ascending: those of `base` (count), but where two states lead apart.
 *
 * nodes         (differences) where they do, ascending
 * ours, theirs  (differences) the state there, and what it is in `base`
 * found         written
 *
 * Returns how many there are.
 */
static int64_t merged(const int32_t *base, int64_t count, int64_t state, const int32_t *nodes, const int32_t *ours,
                      const int32_t *theirs, int64_t differences, int32_t *found)
{
    int64_t number = 0, at = 0;
    for (int64_t i = 0; i < differences; i++) {
        if (ours[i] != state && theirs[i] != state)
            continue;
        while (at < count && base[at] < nodes[i])
            found[number++] = base[at++];
        if (theirs[i] == state)
            at++;
        else
            found[number++] = nodes[i];
    }
    while (at < count)
        found[number++] = base[at++];
    return number;
}

/* Writes the nodes where tokens leave, apart for each state there: see `Table`.
 *
 * base  the table of the other state
 * left  written: the arrays `left`, `left_count` and `left_in`, each of `room` numbers, and then the nodes
 *
 * Returns how many states there are.
 */
static int64_t leave(const Table *base, const int32_t *nodes, const int32_t *ours, const int32_t *theirs,
                     int64_t differences, int64_t *left, int64_t room)
{
    int64_t *count = left + room, *in = left + 2 * room, groups = base->leaving, kept = 0;
    int32_t *found = (int32_t *)(left + 3 * room);
    memcpy(in, base->left_in, (size_t)groups * sizeof *in);
    for (int64_t i = 0; i < differences; i++) {
        int64_t at = 0;
        while (at < groups && in[at] != ours[i])
            at++;
        if (ours[i] && at == groups)
            in[groups++] = ours[i];
    }
    for (int64_t j = 0; j < groups; j++) {
        const int is_new = j >= base->leaving;
        const int32_t *before = is_new ? NULL : (const int32_t *)(intptr_t)base->left[j];
        const int64_t number = merged(before, is_new ? 0 : base->left_count[j], in[j], nodes, ours, theirs, differences,
                                      found);
        if (number) {
            left[kept] = (int64_t)(intptr_t)found, count[kept] = number, in[kept++] = in[j];
            found += number;
        }
    }
    return kept;
}

/* Makes the table of the state of a frame, from the root of the trie; none where it is not like that of another state.
 *
 * scratch  three numbers for each node of the trie
 *
 * Returns 0, or what is missing.
 */
int64_t derive_table(Machine *m, const Frame *frame, int64_t word_count, int32_t *scratch)
{
    const Component *c = m->components + frame->component;
    const int64_t body =
        c->begins ? 0 : hf_guided_body(c->class_of, c->table, c->classes, frame->state, MANY_BYTES);
    const int64_t all = 1 + m->below[0], room = all < MOST_DIFFERENT ? all : MOST_DIFFERENT;
    const size_t word_bytes = (size_t)(word_count + word_count % 2) * sizeof(uint32_t);
    int32_t *ours = scratch + room, *theirs = scratch + 2 * room, *known;
    int64_t differences, groups, nodes = 0;
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
    differences = hf_guided_change(m->child, m->byte, c->class_of, c->table, c->classes, room, scratch, ours, theirs,
                                   c->leaves, m->token_start, m->token_ids, (uint32_t *)(void *)block);
    if (differences < 0) {
        free(block);
        return 0;
    }
    for (int64_t j = 0; j < table.leaving; j++)
        nodes += table.left_count[j];
    groups = table.leaving + differences;
    const size_t bytes = word_bytes + (size_t)(3 * groups) * sizeof(int64_t) +
                         (size_t)(nodes + differences) * sizeof(int32_t);
    if (!(larger = realloc(block, bytes))) {
        free(block);
        return NO_MEMORY;
    }
    int64_t *left = (int64_t *)(void *)(larger + word_bytes);
    table.leaving = leave(&table, scratch, ours, theirs, differences, left, groups);
    table.left = left, table.left_count = left + groups, table.left_in = left + 2 * groups;
    table.words = (const uint32_t *)(void *)larger;
    table.held = larger;
    table.stay.groups = -1;
    m->derived_bytes += (int64_t)bytes;
    m->missing = (int64_t)table_key(frame->component, frame->state, 0) - 1;
    if (hf_guided_machine_table(m, &table)) {
        free(larger);
        return NO_MEMORY;
    }
    return 0;
}
