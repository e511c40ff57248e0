/* The minimal automaton of a table: the last part of byte_dfa.py's `finished`, with the same result.
 *
 * Blocks of states that may be equivalent are split until all states of a block lead to the same blocks. As in
 * refine.py, a round looks only at states that lead to one that moved in the round before, and where a block is split,
 * its largest part stays: so a state moves at most log2(states) times.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "public.h"

/* States of one block that lead to the same blocks. */
typedef struct {
    uint64_t hash;
    int32_t block, first, count, to; /* `first` is one of them; they move to block `to`, -1 if they stay */
} Group;

/* Columns side by side of one row that lead to one state; the next run begins where it ends. */
typedef struct {
    int32_t first, to;
} Run;

typedef struct {
    const int32_t *table;
    int32_t states, blocks, dirty_count, moved_count;
    int64_t classes;
    Run *runs;                                      /* of all rows: most rows have few, whatever the classes */
    int64_t *run_begin;                             /* of each state */
    int32_t *block_of, *moves_to;                   /* of each state */
    int32_t *head, *size, *largest, *dirty_in;      /* of each block */
    int32_t *next, *previous;                       /* states of one block, a list */
    int64_t *before_begin;                          /* of each state: those that lead to it */
    int32_t *before, *dirty, *moved, *group_of, *buckets;
    uint8_t *is_dirty;
    Group *groups;
} Blocks;

static uint64_t with_next(uint64_t hash, int32_t number)
{
    return ((hash ^ (uint32_t)number) * UINT64_C(0x9e3779b97f4a7c15)) ^ (hash >> 29);
}

/* The first run from `run` on that leads to another block. */
static int64_t next_block(const Blocks *b, int64_t run, int64_t end)
{
    const int32_t block = b->block_of[b->runs[run].to];
    do
        run++;
    while (run < end && b->block_of[b->runs[run].to] == block);
    return run;
}

static int is_alike(const Blocks *b, int32_t one, int32_t other)
{
    const int64_t our_end = b->run_begin[one + 1], their_end = b->run_begin[other + 1];
    int64_t ours = b->run_begin[one], theirs = b->run_begin[other];
    if (b->block_of[one] != b->block_of[other])
        return 0;
    while (ours < our_end && theirs < their_end) {
        const Run mine = b->runs[ours], yours = b->runs[theirs];
        if (mine.first != yours.first || b->block_of[mine.to] != b->block_of[yours.to])
            return 0;
        ours = next_block(b, ours, our_end);
        theirs = next_block(b, theirs, their_end);
    }
    return ours == our_end && theirs == their_end;
}

/* Puts dirty states into groups; returns how many groups. */
static int32_t group(Blocks *b)
{
    int32_t groups = 0;
    int64_t room = 16;
    while (room < 2 * (int64_t)b->dirty_count)
        room *= 2;
    memset(b->buckets, 0xff, (size_t)room * sizeof *b->buckets);
    for (int32_t i = 0; i < b->dirty_count; i++) {
        const int32_t state = b->dirty[i];
        const int64_t end = b->run_begin[state + 1];
        uint64_t hash = mixed((uint64_t)b->block_of[state] + 1);
        for (int64_t run = b->run_begin[state]; run < end; run = next_block(b, run, end))
            hash += mixed((uint64_t)b->runs[run].first << 32 | (uint32_t)b->block_of[b->runs[run].to]);
        uint64_t at = mixed(hash) & (uint64_t)(room - 1);
        int32_t found;
        while ((found = b->buckets[at]) >= 0 &&
               !(b->groups[found].hash == hash && is_alike(b, b->groups[found].first, state)))
            at = (at + 1) & (uint64_t)(room - 1);
        if (found < 0) {
            found = b->buckets[at] = groups++;
            b->groups[found] = (Group){hash, b->block_of[state], state, 0, -1};
        }
        b->groups[found].count++;
        b->group_of[i] = found;
    }
    return groups;
}

static void move(Blocks *b, int32_t state, int32_t to)
{
    b->moved[b->moved_count++] = state;
    b->moves_to[state] = to;
}

/* Says which states move where. */
static void choose(Blocks *b, int32_t groups)
{
    for (int32_t i = 0; i < groups; i++)
        b->largest[b->groups[i].block] = -1, b->dirty_in[b->groups[i].block] = 0;
    for (int32_t i = 0; i < groups; i++) {
        const Group *group = b->groups + i;
        const int32_t largest = b->largest[group->block];
        b->dirty_in[group->block] += group->count;
        if (largest < 0 || b->groups[largest].count < group->count)
            b->largest[group->block] = i;
    }
    for (int32_t i = 0; i < groups; i++) {
        Group *group = b->groups + i;
        const int32_t clean = b->size[group->block] - b->dirty_in[group->block];
        if (b->largest[group->block] != i || clean >= group->count) {
            group->to = b->blocks++;
        } else if (clean) {
            const int32_t to = b->blocks++;
            for (int32_t state = b->head[group->block]; state >= 0; state = b->next[state])
                if (!b->is_dirty[state])
                    move(b, state, to);
        }
    }
    for (int32_t i = 0; i < b->dirty_count; i++)
        if (b->groups[b->group_of[i]].to >= 0)
            move(b, b->dirty[i], b->groups[b->group_of[i]].to);
}

static void enter_block(Blocks *b, int32_t state, int32_t block)
{
    b->block_of[state] = block;
    b->previous[state] = -1;
    b->next[state] = b->head[block];
    if (b->head[block] >= 0)
        b->previous[b->head[block]] = state;
    b->head[block] = state;
    b->size[block]++;
}

static void leave_block(Blocks *b, int32_t state)
{
    const int32_t block = b->block_of[state], next = b->next[state], previous = b->previous[state];
    if (next >= 0)
        b->previous[next] = previous;
    if (previous >= 0)
        b->next[previous] = next;
    else
        b->head[block] = next;
    b->size[block]--;
}

/* One round; afterwards the states that lead to one that moved are dirty. */
static void split(Blocks *b)
{
    const int32_t blocks = b->blocks;
    b->moved_count = 0;
    choose(b, group(b));
    for (int32_t i = 0; i < b->dirty_count; i++)
        b->is_dirty[b->dirty[i]] = 0;
    b->dirty_count = 0;
    for (int32_t block = blocks; block < b->blocks; block++)
        b->head[block] = -1, b->size[block] = 0;
    for (int32_t i = 0; i < b->moved_count; i++) {
        const int32_t state = b->moved[i];
        leave_block(b, state);
        enter_block(b, state, b->moves_to[state]);
        for (int64_t at = b->before_begin[state]; at < b->before_begin[state + 1]; at++) {
            const int32_t source = b->before[at];
            if (!b->is_dirty[source]) {
                b->is_dirty[source] = 1;
                b->dirty[b->dirty_count++] = source;
            }
        }
    }
}

/* Splits until nothing is dirty; 0 if `look` stopped it. */
static int is_split(Blocks *b, Look look)
{
    int64_t since_look = 0;
    while (b->dirty_count) {
        since_look += b->dirty_count * b->classes;
        if (since_look >= LOOK_AT) {
            since_look = 0;
            if (look())
                return 0;
        }
        split(b);
    }
    return 1;
}

/* 0 if there is no memory. */
static int find_runs(Blocks *b)
{
    int64_t count = b->states, used = 0;
    for (int64_t i = 1; i < b->states * b->classes; i++)
        count += b->table[i] != b->table[i - 1];
    b->runs = malloc((size_t)count * sizeof *b->runs); /* a few more than there are */
    b->run_begin = malloc(((size_t)b->states + 1) * sizeof *b->run_begin);
    if (!b->runs || !b->run_begin)
        return 0;
    for (int32_t state = 0; state < b->states; state++) {
        const int32_t *row = b->table + b->classes * state;
        b->run_begin[state] = used;
        for (int64_t i = 0; i < b->classes; i++)
            if (!i || row[i] != row[i - 1])
                b->runs[used++] = (Run){(int32_t)i, row[i]};
    }
    b->run_begin[b->states] = used;
    return 1;
}

/* Finds the states that lead to each but state 0, once each. */
static void find_before(Blocks *b, int32_t *last)
{
    for (int round = 0; round < 2; round++) { /* count, then write */
        for (int32_t state = 0; state < b->states; state++)
            last[state] = -1;
        for (int32_t source = 0; source < b->states; source++) {
            for (int64_t run = b->run_begin[source]; run < b->run_begin[source + 1]; run++) {
                const int32_t to = b->runs[run].to;
                if (!to || last[to] == source)
                    continue;
                last[to] = source;
                if (round)
                    b->before[b->before_begin[to]++] = source;
                else
                    b->before_begin[to + 1]++;
            }
        }
        for (int32_t state = 0; !round && state < b->states; state++)
            b->before_begin[state + 1] += b->before_begin[state];
    }
    memmove(b->before_begin + 1, b->before_begin, (size_t)b->states * sizeof *b->before_begin);
    b->before_begin[0] = 0;
}

/* Puts states as far from the end as others into one block: then long texts, a state for each byte, take few rounds. */
static void begin_blocks(Blocks *b, const uint8_t *accepting)
{
    int32_t *queue = b->moved, queued = 0, *distance = b->moves_to;
    b->head[0] = b->head[1] = -1; /* the dead state, and those that reach no end */
    b->size[0] = b->size[1] = 0;
    b->blocks = 2;
    for (int32_t state = 0; state < b->states; state++) {
        distance[state] = !state ? 0 : accepting[state] ? 2 : 1;
        if (distance[state] == 2)
            queue[queued++] = state;
    }
    for (int32_t i = 0; i < queued; i++) {
        const int32_t next = distance[queue[i]] + 1;
        for (int64_t at = b->before_begin[queue[i]]; at < b->before_begin[queue[i] + 1]; at++) {
            const int32_t source = b->before[at];
            if (distance[source] != 1)
                continue;
            distance[source] = next;
            queue[queued++] = source;
        }
    }
    for (int32_t state = 0; state < b->states; state++) {
        for (; b->blocks <= distance[state]; b->blocks++)
            b->head[b->blocks] = -1, b->size[b->blocks] = 0;
        enter_block(b, state, distance[state]);
        b->is_dirty[state] = 1;
        b->dirty[b->dirty_count++] = state;
    }
}

static int begin(Blocks *b, const uint8_t *accepting)
{
    const size_t states = (size_t)b->states;
    size_t room = 16;
    while (room < 2 * states)
        room *= 2;
    int32_t **arrays[] = {&b->block_of, &b->moves_to, &b->head, &b->size, &b->largest, &b->dirty_in,
                          &b->next, &b->previous, &b->dirty, &b->moved, &b->group_of};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!(*arrays[i] = malloc((states + 3) * sizeof **arrays[i])))
            return 0;
    b->buckets = malloc(room * sizeof *b->buckets);
    b->before_begin = calloc(states + 1, sizeof *b->before_begin);
    b->is_dirty = malloc(states);
    b->groups = malloc(states * sizeof *b->groups);
    if (!b->buckets || !b->before_begin || !b->is_dirty || !b->groups || !find_runs(b) ||
        !(b->before = malloc((size_t)(b->run_begin[states] + 1) * sizeof *b->before)))
        return 0;
    find_before(b, b->moved);
    begin_blocks(b, accepting);
    return 1;
}

static void end(Blocks *b)
{
    int32_t *arrays[] = {b->block_of, b->moves_to, b->head, b->size, b->largest, b->dirty_in, b->next, b->previous,
                         b->before, b->dirty, b->moved, b->group_of, b->buckets};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(b->runs);
    free(b->run_begin);
    free(b->before_begin);
    free(b->is_dirty);
    free(b->groups);
}

/* The minimal automaton; states keep their order, and each is numbered when its first one comes.
 *
 * table      (states, classes) where each class of bytes leads; state 0 is dead
 * accepting  (states)
 * number     (states) written: the number of each state in the result; one of each number stands first
 * kept       (states) written: a state of each number
 *
 * Returns how many states are left; -1 if there is no memory, -2 if `look` stopped it.
 */
PUBLIC int64_t hf_guided_minimize(const int32_t *table, int64_t states, int64_t classes, const uint8_t *accepting,
                                  int32_t *number, int32_t *kept, Look look)
{
    Blocks b;
    int64_t left = -1;
    memset(&b, 0, sizeof b);
    b.table = table;
    b.states = (int32_t)states;
    b.classes = classes;
    if (begin(&b, accepting)) {
        left = is_split(&b, look) ? 0 : -2;
    }
    if (!left) {
        int32_t *number_of = b.largest; /* of each block */
        for (int32_t block = 0; block < b.blocks; block++)
            number_of[block] = -1;
        for (int32_t state = 0; state < b.states; state++) {
            int32_t *mine = number_of + b.block_of[state];
            if (*mine < 0) {
                *mine = (int32_t)left;
                kept[left++] = state;
            }
            number[state] = *mine;
        }
    }
    end(&b);
    return left;
}

static int is_column(const int32_t *table, int64_t classes, const int32_t *number, const int32_t *kept, int64_t left,
                     int64_t one, int64_t other)
{
    for (int64_t state = 0; state < left; state++) {
        const int32_t *row = table + classes * kept[state];
        if (number[row[one]] != number[row[other]])
            return 0;
    }
    return 1;
}

/* The columns of a table that are different, and the table with those alone.
 *
 * table    (states, classes); `number` (states) is the number of each state in the result, `kept` (left) a state of each
 * merged   (left, classes) written; only the first columns of each row, as many as there are different ones
 * column   (classes) written: which of the columns each one is
 * chosen   (classes) written: for each column in the result the first like it, as many as there are
 * hash     (classes) written, of each column
 *
 * Returns how many columns there are.
 */
PUBLIC int64_t hf_guided_merge_columns(const int32_t *table, int64_t classes, const int32_t *number,
                                       const int32_t *kept, int64_t left, int32_t *merged, int64_t *column,
                                       int64_t *chosen, uint64_t *hash)
{
    int64_t columns = 0;
    memset(hash, 0, (size_t)classes * sizeof *hash);
    for (int64_t state = 0; state < left; state++)
        for (int64_t i = 0; i < classes; i++)
            hash[i] = with_next(hash[i], number[table[classes * kept[state] + i]]);
    for (int64_t i = 0; i < classes; i++) {
        column[i] = -1;
        for (int64_t j = 0; j < columns && column[i] < 0; j++)
            if (hash[i] == hash[chosen[j]] && is_column(table, classes, number, kept, left, i, chosen[j]))
                column[i] = j;
        if (column[i] >= 0)
            continue;
        chosen[columns] = i;
        column[i] = columns++;
    }
    for (int64_t state = 0; state < left; state++)
        for (int64_t j = 0; j < columns; j++)
            merged[classes * state + j] = number[table[classes * kept[state] + chosen[j]]];
    return columns;
}
