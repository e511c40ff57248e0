/* The minimal automaton of a table: `finished` of byte_dfa.py.
 *
 * Blocks of states that may be equivalent are split until all states of a block lead to the same blocks. A round looks
 * only at states that lead to one that moved in the round before, and where a block is split, its largest part stays:
 * so a state moves at most log2(states) times.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "public.h"
#include "tables.h"

/* States of one block that lead to the same blocks. */
typedef struct {
    uint64_t hash;
    int32_t block, first, count, to; /* `first` is one of them; they move to block `to`, -1 if they stay */
} Group;

/* Columns side by side of one row that lead to one state; the next run begins where it ends. */
typedef struct {
    int32_t end, to;
} Run;

typedef struct {
    const int32_t *table;
    int32_t states, blocks, dirty_count, moved_count;
    int64_t classes;
    Run *runs;                                      /* of all rows: most rows have few, whatever the classes */
    int64_t *run_begin, run_room;                   /* of each state; of all */
    uint64_t *weight_before;                        /* of each column, random: the sum of those before it */
    uint64_t *hash_of;                              /* of each state, the same for all of a block */
    int32_t *block_of, *moves_to;                   /* of each state */
    int32_t *head, *size, *largest, *dirty_in;      /* of each block */
    int32_t *next, *previous;                       /* states of one block, a list */
    int64_t *before_begin;                          /* of each state: those that lead to it */
    int32_t *before, *dirty, *moved, *group_of, *buckets;
    uint8_t *is_dirty;
    Group *groups;
} Blocks;

static int is_alike(const Blocks *b, int32_t one, int32_t other)
{
    const int32_t *ours = b->table + b->classes * one, *theirs = b->table + b->classes * other;
    if (b->block_of[one] != b->block_of[other])
        return 0;
    for (int64_t i = 0; i < b->classes; i++)
        if (ours[i] != theirs[i] && b->block_of[ours[i]] != b->block_of[theirs[i]])
            return 0;
    return 1;
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
        uint64_t hash = b->hash_of[state], before = 0;
        for (int64_t at = b->run_begin[state]; at < b->run_begin[state + 1]; at++) {
            const Run run = b->runs[at]; /* the sum is the same however runs to one block are split */
            hash += b->hash_of[run.to] * (b->weight_before[run.end] - before);
            before = b->weight_before[run.end];
        }
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
    b->hash_of[state] = mixed((uint64_t)block + 1);
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

/* A state alone in its block stays there. */
static void drop_lone(Blocks *b)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < b->dirty_count; i++) {
        const int32_t state = b->dirty[i];
        if (b->size[b->block_of[state]] > 1)
            b->dirty[kept++] = state;
        else
            b->is_dirty[state] = 0;
    }
    b->dirty_count = kept;
}

/* One round; afterwards the states that lead to one that moved are dirty. */
static void split(Blocks *b)
{
    const int32_t blocks = b->blocks;
    b->moved_count = 0;
    drop_lone(b);
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
    int64_t used = 0;
    for (int32_t state = 0; state < b->states; state++) {
        const int32_t *row = b->table + b->classes * state;
        if (used + b->classes > b->run_room) {
            b->run_room = 2 * b->run_room + b->classes;
            Run *larger = realloc(b->runs, (size_t)b->run_room * sizeof *larger);
            if (!larger)
                return 0;
            b->runs = larger;
        }
        b->run_begin[state] = used;
        for (int64_t i = 1; i < b->classes; i++)
            if (row[i] != row[i - 1])
                b->runs[used++] = (Run){(int32_t)i, row[i - 1]};
        b->runs[used++] = (Run){(int32_t)b->classes, row[b->classes - 1]};
    }
    b->run_begin[b->states] = used;
    return 1;
}

/* Finds the states that lead to each, once for each run. */
static void find_before(Blocks *b)
{
    int64_t *begin = b->before_begin;
    for (int64_t run = 0; run < b->run_begin[b->states]; run++)
        begin[b->runs[run].to + 1]++;
    for (int32_t state = 0; state < b->states; state++)
        begin[state + 1] += begin[state];
    for (int32_t source = 0; source < b->states; source++)
        for (int64_t run = b->run_begin[source]; run < b->run_begin[source + 1]; run++)
            b->before[begin[b->runs[run].to]++] = source;
    memmove(begin + 1, begin, (size_t)b->states * sizeof *begin);
    begin[0] = 0;
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
    b->run_begin = malloc((states + 1) * sizeof *b->run_begin);
    b->hash_of = malloc(states * sizeof *b->hash_of);
    b->weight_before = malloc(((size_t)b->classes + 1) * sizeof *b->weight_before);
    if (!b->buckets || !b->before_begin || !b->is_dirty || !b->groups || !b->run_begin || !b->hash_of ||
        !b->weight_before)
        return 0;
    b->weight_before[0] = 0;
    for (int64_t i = 0; i < b->classes; i++)
        b->weight_before[i + 1] = b->weight_before[i] + mixed((uint64_t)i + 1);
    if (!find_runs(b) ||
        !(b->before = malloc((size_t)b->run_begin[states] * sizeof *b->before)))
        return 0;
    find_before(b);
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
    free(b->weight_before);
    free(b->hash_of);
    free(b->before_begin);
    free(b->is_dirty);
    free(b->groups);
}

/* Numbers the states that are left: each when its first one comes.
 *
 * number  (states) written: the number of each state
 * kept    (states) written: the first state of each number
 *
 * Returns how many there are; -1 if there is no memory, -2 if `look` stopped it.
 */
static int64_t number_states(Blocks *b, const uint8_t *accepting, int32_t *number, int32_t *kept, Look look)
{
    int64_t left = begin(b, accepting) ? 0 : -1;
    if (!left && !is_split(b, look))
        left = -2;
    if (left)
        return left;
    int32_t *number_of = b->largest; /* of each block */
    for (int32_t block = 0; block < b->blocks; block++)
        number_of[block] = -1;
    for (int32_t state = 0; state < b->states; state++) {
        int32_t *mine = number_of + b->block_of[state];
        if (*mine < 0) {
            *mine = (int32_t)left;
            kept[left++] = state;
        }
        number[state] = *mine;
    }
    return left;
}

struct Minimal {
    int32_t *table;  /* (states, classes), of each row only the columns */
    int32_t *column; /* (classes) which of the columns each class has */
    uint8_t *accepting, byte_class[256];
    int64_t states, classes, columns;
};

static int is_column(const Minimal *m, int64_t one, int64_t other)
{
    for (int64_t at = 0; at < m->states * m->classes; at += m->classes)
        if (m->table[at + one] != m->table[at + other])
            return 0;
    return 1;
}

/* Finds the columns that are different, and leaves those alone.
 *
 * chosen  (classes) scratch: for each column that is left the first class that has it
 * hash    (classes) scratch, zeros: of the column of each class
 */
static void merge_columns(Minimal *m, int64_t *chosen, uint64_t *hash)
{
    for (int64_t state = 0; state < m->states; state++) {
        const uint64_t weight = mixed((uint64_t)state + 1);
        for (int64_t i = 0; i < m->classes; i++)
            hash[i] += weight * (uint32_t)m->table[m->classes * state + i];
    }
    for (int64_t i = 0; i < m->classes; i++) {
        m->column[i] = -1;
        for (int64_t j = 0; j < m->columns && m->column[i] < 0; j++)
            if (hash[i] == hash[chosen[j]] && is_column(m, i, chosen[j]))
                m->column[i] = (int32_t)j;
        if (m->column[i] >= 0)
            continue;
        chosen[m->columns] = i;
        m->column[i] = (int32_t)m->columns++;
    }
    for (int64_t state = 0; state < m->states; state++)
        for (int64_t j = 0; j < m->columns; j++) /* no column moves to the right */
            m->table[m->classes * state + j] = m->table[m->classes * state + chosen[j]];
}

PUBLIC void hf_guided_minimal_end(Minimal *m)
{
    free(m->table);
    free(m->column);
    free(m->accepting);
    free(m);
}

Minimal *minimal_of(const int32_t *table, int64_t states, int64_t classes, const uint8_t *accepting,
                    const uint8_t *byte_class, int64_t start, Look look, int64_t *counts)
{
    Blocks b = {.table = table, .states = (int32_t)states, .classes = classes};
    Minimal *m = calloc(1, sizeof *m);
    int32_t *number = malloc(2 * (size_t)states * sizeof *number), *kept = number + states;
    uint64_t *hash = calloc(2 * (size_t)classes, sizeof *hash);
    counts[0] = m && number && hash ? number_states(&b, accepting, number, kept, look) : -1;
    end(&b);
    if (counts[0] > 0) {
        m->states = counts[0];
        m->classes = classes;
        m->table = malloc((size_t)(m->states * classes) * sizeof *m->table);
        m->column = malloc((size_t)classes * sizeof *m->column);
        m->accepting = malloc((size_t)m->states);
        if (!m->table || !m->column || !m->accepting)
            counts[0] = -1;
    }
    if (counts[0] > 0) {
        for (int64_t state = 0; state < m->states; state++) {
            m->accepting[state] = accepting[kept[state]];
            for (int64_t i = 0; i < classes; i++)
                m->table[classes * state + i] = number[table[classes * kept[state] + i]];
        }
        merge_columns(m, (int64_t *)hash + classes, hash);
        for (int byte = 0; byte < 256; byte++)
            m->byte_class[byte] = (uint8_t)m->column[byte_class[byte]];
        counts[1] = m->columns;
        counts[2] = number[start];
    } else if (m) {
        hf_guided_minimal_end(m);
        m = NULL;
    }
    free(number);
    free(hash);
    return m;
}

/* As `minimal_of`, for Python. */
PUBLIC Minimal *hf_guided_minimal_begin(const int32_t *table, int64_t states, int64_t classes,
                                        const uint8_t *accepting, const uint8_t *byte_class, int64_t start, Look look,
                                        int64_t *counts)
{
    return minimal_of(table, states, classes, accepting, byte_class, start, look, counts);
}

/* Writes it.
 *
 * narrow, wide  (states, columns) the table: one of the two, the other is null
 * accepting     (states)
 * byte_class    (256) the column of each byte
 */
PUBLIC void hf_guided_minimal_write(const Minimal *m, uint16_t *narrow, uint32_t *wide, uint8_t *accepting,
                                    uint8_t *byte_class)
{
    for (int64_t state = 0; state < m->states; state++) {
        const int32_t *row = m->table + m->classes * state;
        for (int64_t j = 0; narrow && j < m->columns; j++)
            narrow[m->columns * state + j] = (uint16_t)row[j];
        for (int64_t j = 0; wide && j < m->columns; j++)
            wide[m->columns * state + j] = (uint32_t)row[j];
    }
    memcpy(accepting, m->accepting, (size_t)m->states);
    memcpy(byte_class, m->byte_class, sizeof m->byte_class);
}
