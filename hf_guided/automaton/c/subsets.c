/* The subset construction: subsets.py explains it, and calls these functions.
 *
 *     begin ──► minimal ──► end
 *
 * A limit ends the construction at a step of work that depends on the NFA alone, and `look` ends it between two steps.
 * A set is an ascending array of members, stored once; a map finds its number. Nothing here is shared by two handles,
 * and Python's interpreter is not held.
 */
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "public.h"
#include "tables.h"

enum { EXIT = 1, FIRST = 2 };                                      /* fragments.py */
enum { SET_STEPS = 8, EDGES = 8, CELLS = 64, SUBSET_MEMBERS = 64 }; /* limits.py, subsets.py */
enum { MAX_PAIRS = 2000 }; /* looked at for one question; what takes more is taken for refuted, which is always safe */
enum { DONE = 0, PAST_LIMIT = 1, NO_MEMORY = -1, STOPPED = -2 }; /* subsets.py */
#define CELLS_AT_ONCE ((int64_t)1 << 20)
#define UNKNOWN (-1)

/* As subsets.py lays it out: a Fragment, or a Literal where `table` is null. */
typedef struct {
    const int32_t *table; /* (states, segments) */
    const int64_t *bounds; /* (segments + 1) */
    const int32_t *start; /* (segments) */
    const uint8_t *ends; /* (states) */
    int64_t states, segments;
    const uint8_t *data; /* (states - 1) of a Literal */
} Fragment;

/* As subsets.py lays it out. */
typedef struct {
    const Fragment *fragments;
    const int32_t *fragment_of, *source, *target; /* (pieces) */
    const int32_t *skips;                         /* (skip_count, 2) source and target */
    int64_t outer, pieces, skip_count, fragment_count, start, end;
    /* `Copies` of subsets.py; levels is -1 where there is nothing to say. */
    int64_t levels;
    const int64_t *state_index, *piece_index; /* (outer), (pieces) */
    const int32_t *state_ranks, *piece_ranks; /* (outer, levels), (pieces, levels) */
    int64_t max_states, max_work;
    Look look;
} Nfa;

typedef struct {
    int64_t *keys; /* -1 is empty */
    int32_t *values;
    int64_t room, used;
} Map;

typedef struct {
    int32_t *items;
    int64_t room, used;
} Ints;

typedef struct {
    uint64_t *items;
    int64_t room, used;
} Words;

/* The pieces and skips that lead to states from which the end can be reached, sorted by their source. */
typedef struct {
    Ints pieces, starts;     /* those of one source side by side; (outer + 1) where they begin */
    Ints skips, skip_starts; /* their targets, likewise */
    Ints firsts;             /* of the members inside each of the pieces */
} Useful;

typedef struct {
    uint64_t first_bytes[4], end_bytes[4]; /* sets of bytes */
    uint8_t has_ends, has_pairs;
    int64_t copies[2]; /* entered, of those where `opens` is 0 and 1 */
    Map pairs;         /* of states, whether the one includes the other: 0 refuted, 1 holds */
} Facts;

typedef struct {
    int32_t state; /* below zero: a row after a piece, which no byte leads to */
    int32_t set;
} Todo;

typedef struct {
    int32_t state, low, high, target;
} Row;

typedef struct {
    int32_t index, inside, member;
    const int32_t *ranks; /* (levels) */
    int64_t levels;
} Copy;

typedef struct {
    Nfa nfa;
    Useful useful;
    jmp_buf ended;
    int status; /* that it ended with */
    int64_t work, members, since_look;
    int32_t states, after_count;
    /* sets */
    Ints arena, set_begin, buckets, id_of_set, id_of_targets;
    Words set_hash;
    /* of members */
    Ints closure_of_outer, seen;
    int32_t seen_now;
    Map closure_of, id_of;
    /* of pieces */
    int32_t **entered;
    int8_t *opens;
    Facts *facts; /* of fragments */
    Map after_piece;
    Todo *todo;
    int64_t todo_room, todo_used;
    Row *rows;
    int64_t row_room, row_used;
    /* the table */
    uint8_t byte_class[256];
    int64_t columns;
    /* scratch, each for one function */
    Words edges;
    Ints targets, united, reached, stack, inside, borders, seen_inside, swept, follow_pair, follow_before;
    int32_t seen_inside_now;
    Map follow_known;
    Copy *copies, *kept;
    int64_t copy_room, kept_room;
} Subsets;

/* -- limits */

static void end_with(Subsets *s, int status)
{
    s->status = status;
    longjmp(s->ended, 1);
}

/* Counts entries that a loop handles, also where they are no steps of work. */
static void handle(Subsets *s, int64_t entries)
{
    s->since_look += entries;
    if (s->since_look < LOOK_AT)
        return;
    s->since_look = 0;
    if (s->nfa.look())
        end_with(s, STOPPED);
}

static void spend(Subsets *s, int64_t steps)
{
    s->work += steps;
    if (s->work > s->nfa.max_work)
        end_with(s, PAST_LIMIT);
    handle(s, CELLS * steps);
}

static void check_states(Subsets *s, int64_t states)
{
    if (states > s->nfa.max_states)
        end_with(s, PAST_LIMIT);
}

/* -- memory */

static void *grown(Subsets *s, void *data, int64_t *room, int64_t needed, size_t each)
{
    if (needed <= *room && data)
        return data;
    int64_t more = *room * 2 > needed ? *room * 2 : needed + 16;
    void *larger = realloc(data, (size_t)more * each);
    if (!larger)
        end_with(s, NO_MEMORY);
    *room = more;
    return larger;
}

static void push(Subsets *s, Ints *list, int32_t item)
{
    list->items = grown(s, list->items, &list->room, list->used + 1, sizeof *list->items);
    list->items[list->used++] = item;
}

static void push_word(Subsets *s, Words *list, uint64_t item)
{
    list->items = grown(s, list->items, &list->room, list->used + 1, sizeof *list->items);
    list->items[list->used++] = item;
}

static void *zeroed(Subsets *s, int64_t count, size_t each)
{
    void *data = calloc((size_t)(count ? count : 1), each);
    if (!data)
        end_with(s, NO_MEMORY);
    return data;
}

static int32_t *filled(Subsets *s, Ints *list, int64_t count, int32_t value)
{
    list->items = grown(s, list->items, &list->room, count + 1, sizeof *list->items);
    for (int64_t i = 0; i < count; i++)
        list->items[i] = value;
    return list->items;
}

/* The place of a key's value, which is `fresh` if the key is new. Valid until the next key. */
static int32_t *map_at(Subsets *s, Map *map, int64_t key, int32_t fresh)
{
    if (map->used * 2 >= map->room) {
        Map larger = {NULL, NULL, map->room ? map->room * 2 : 64, map->used};
        larger.keys = malloc((size_t)larger.room * sizeof *larger.keys);
        larger.values = malloc((size_t)larger.room * sizeof *larger.values);
        if (!larger.keys || !larger.values) {
            free(larger.keys);
            free(larger.values);
            end_with(s, NO_MEMORY);
        }
        memset(larger.keys, 0xff, (size_t)larger.room * sizeof *larger.keys);
        for (int64_t i = 0; i < map->room; i++) {
            if (map->keys[i] < 0)
                continue;
            uint64_t at = mixed((uint64_t)map->keys[i]) & (uint64_t)(larger.room - 1);
            while (larger.keys[at] >= 0)
                at = (at + 1) & (uint64_t)(larger.room - 1);
            larger.keys[at] = map->keys[i];
            larger.values[at] = map->values[i];
        }
        free(map->keys);
        free(map->values);
        *map = larger;
    }
    uint64_t at = mixed((uint64_t)key) & (uint64_t)(map->room - 1);
    while (map->keys[at] >= 0 && map->keys[at] != key)
        at = (at + 1) & (uint64_t)(map->room - 1);
    if (map->keys[at] < 0) {
        map->keys[at] = key;
        map->values[at] = fresh;
        map->used++;
    }
    return map->values + at;
}

static void map_clear(Map *map)
{
    if (map->used)
        memset(map->keys, 0xff, (size_t)map->room * sizeof *map->keys);
    map->used = 0;
}

static void map_free(Map *map)
{
    free(map->keys);
    free(map->values);
}

static int ascending_words(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int ascending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts, and keeps one of equal numbers; returns how many are left. */
static int64_t sorted_once(int32_t *items, int64_t count)
{
    if (count < 2)
        return count;
    if (count <= 12) {
        for (int64_t i = 1; i < count; i++) {
            int32_t item = items[i];
            int64_t j = i;
            for (; j && items[j - 1] > item; j--)
                items[j] = items[j - 1];
            items[j] = item;
        }
    } else {
        qsort(items, (size_t)count, sizeof *items, ascending);
    }
    int64_t kept = 1;
    for (int64_t i = 1; i < count; i++)
        if (items[i] != items[kept - 1])
            items[kept++] = items[i];
    return kept;
}

/* -- the useful moves: from them the end can be reached */

/* Sorts the numbers of moves by a state of each; those with the same one stay in order.
 *
 * states  of the moves, each `stride` entries after the one before
 * begins  (outer + 1) written: where those of each state begin
 */
static void sort_moves(Subsets *s, const int32_t *states, int64_t stride, int64_t count, Ints *moves, Ints *begins)
{
    filled(s, moves, count, 0);
    moves->used = count;
    int32_t *begin = filled(s, begins, s->nfa.outer + 1, 0);
    for (int64_t i = 0; i < count; i++)
        begin[states[stride * i] + 1]++;
    for (int64_t state = 0; state < s->nfa.outer; state++)
        begin[state + 1] += begin[state];
    for (int64_t i = count; i--;) /* from the last one on: what is counted up to each state becomes its begin */
        moves->items[--begin[states[stride * i] + 1]] = (int32_t)i;
    memmove(begin, begin + 1, (size_t)s->nfa.outer * sizeof *begin);
    begin[s->nfa.outer] = (int32_t)count;
}

/* Drops the moves whose target is not useful. */
static void keep_useful(Subsets *s, const int32_t *targets, int64_t stride, Ints *moves, Ints *begins)
{
    int32_t *begin = begins->items;
    moves->used = 0;
    for (int64_t state = 0, at = 0; state < s->nfa.outer; state++) {
        const int32_t end = begin[state + 1];
        begin[state] = (int32_t)moves->used;
        for (; at < end; at++)
            if (s->seen.items[targets[stride * moves->items[at]]])
                moves->items[moves->used++] = moves->items[at];
    }
    begin[s->nfa.outer] = (int32_t)moves->used;
}

static void reach_back(Subsets *s, const int32_t *sources, int64_t stride, const Ints *moves, const Ints *begins,
                       int32_t state)
{
    for (int32_t at = begins->items[state]; at < begins->items[state + 1]; at++) {
        const int32_t source = sources[stride * moves->items[at]];
        if (!s->seen.items[source])
            push(s, &s->stack, source);
        s->seen.items[source] = 1;
    }
}

static void find_useful(Subsets *s)
{
    const Nfa *nfa = &s->nfa;
    Useful *useful = &s->useful;
    const int64_t moves = nfa->pieces + nfa->skip_count;
    spend(s, moves);
    spend(s, nfa->outer + moves / EDGES);
    filled(s, &s->seen, nfa->outer, 0);
    s->seen.items[nfa->end] = 1;
    push(s, &s->stack, (int32_t)nfa->end);
    sort_moves(s, nfa->target, 1, nfa->pieces, &useful->pieces, &useful->starts);
    sort_moves(s, nfa->skips + 1, 2, nfa->skip_count, &useful->skips, &useful->skip_starts);
    while (s->stack.used) {
        const int32_t state = s->stack.items[--s->stack.used];
        reach_back(s, nfa->source, 1, &useful->pieces, &useful->starts, state);
        reach_back(s, nfa->skips, 2, &useful->skips, &useful->skip_starts, state);
    }
    sort_moves(s, nfa->source, 1, nfa->pieces, &useful->pieces, &useful->starts);
    sort_moves(s, nfa->skips, 2, nfa->skip_count, &useful->skips, &useful->skip_starts);
    keep_useful(s, nfa->target, 1, &useful->pieces, &useful->starts);
    keep_useful(s, nfa->skips + 1, 2, &useful->skips, &useful->skip_starts);
    for (int64_t i = 0; i < useful->skips.used; i++)
        useful->skips.items[i] = nfa->skips[2 * useful->skips.items[i] + 1];
    int64_t first = nfa->outer;
    for (int64_t piece = 0; piece < useful->pieces.used; piece++) {
        push(s, &useful->firsts, (int32_t)first);
        first += nfa->fragments[nfa->fragment_of[useful->pieces.items[piece]]].states - FIRST;
    }
}

/* -- sets */

static int64_t set_size(const Subsets *s, int32_t set)
{
    return s->set_begin.items[set + 1] - s->set_begin.items[set];
}

/* The number of a set; `items` are ascending, and not in the arena. */
static int32_t interned(Subsets *s, const int32_t *items, int64_t count)
{
    const int64_t sets = s->set_hash.used;
    if (sets * 2 >= s->buckets.used) {
        const int64_t room = s->buckets.used ? s->buckets.used * 2 : 256;
        s->buckets.items = grown(s, s->buckets.items, &s->buckets.room, room, sizeof *s->buckets.items);
        s->buckets.used = room;
        memset(s->buckets.items, 0xff, (size_t)room * sizeof *s->buckets.items);
        for (int64_t set = 0; set < sets; set++) {
            uint64_t at = s->set_hash.items[set] & (uint64_t)(room - 1);
            while (s->buckets.items[at] >= 0)
                at = (at + 1) & (uint64_t)(room - 1);
            s->buckets.items[at] = (int32_t)set;
        }
    }
    uint64_t hash = (uint64_t)count;
    for (int64_t i = 0; i < count; i++)
        hash = mixed(hash ^ (uint32_t)items[i]);
    uint64_t at = hash & (uint64_t)(s->buckets.used - 1);
    for (int32_t set; (set = s->buckets.items[at]) >= 0; at = (at + 1) & (uint64_t)(s->buckets.used - 1))
        if (s->set_hash.items[set] == hash && set_size(s, set) == count &&
            !memcmp(s->arena.items + s->set_begin.items[set], items, (size_t)count * sizeof *items))
            return set;
    if (s->arena.used + count > INT32_MAX)
        end_with(s, NO_MEMORY);
    s->arena.items = grown(s, s->arena.items, &s->arena.room, s->arena.used + count + 1, sizeof *s->arena.items);
    if (count)
        memcpy(s->arena.items + s->arena.used, items, (size_t)count * sizeof *items);
    s->arena.used += count;
    push(s, &s->set_begin, (int32_t)s->arena.used);
    push(s, &s->id_of_set, 0);
    push(s, &s->id_of_targets, 0);
    push_word(s, &s->set_hash, hash);
    s->buckets.items[at] = (int32_t)sets;
    return (int32_t)sets;
}

static void count_members(Subsets *s, int64_t members)
{
    s->members += members;
    check_states(s, s->members / SUBSET_MEMBERS);
    spend(s, members);
}

static void put_todo(Subsets *s, int32_t state, int32_t set)
{
    s->todo = grown(s, s->todo, &s->todo_room, s->todo_used + 1, sizeof *s->todo);
    s->todo[s->todo_used++] = (Todo){state, set};
}

static int32_t id_of_set(Subsets *s, int32_t set)
{
    if (!s->id_of_set.items[set]) {
        s->id_of_set.items[set] = s->states++;
        put_todo(s, s->id_of_set.items[set], set);
        count_members(s, set_size(s, set));
    }
    return s->id_of_set.items[set];
}

/* -- pieces */

/* Pieces are numbered as the useful ones are sorted. */
static int32_t kind_of(const Subsets *s, int64_t piece)
{
    return s->nfa.fragment_of[s->useful.pieces.items[piece]];
}

static const Fragment *fragment_of(const Subsets *s, int64_t piece)
{
    return s->nfa.fragments + kind_of(s, piece);
}

static int32_t target_of(const Subsets *s, int64_t piece)
{
    return s->nfa.target[s->useful.pieces.items[piece]];
}

static int is_end(const Fragment *f, int64_t state)
{
    return f->table && f->ends[state];
}

static int leaves(const Subsets *s, int64_t state)
{
    return s->useful.starts.items[state] < s->useful.starts.items[state + 1];
}

/* The piece that a member is inside of. */
static int64_t piece_of(const Subsets *s, int64_t member)
{
    int64_t low = 0, high = s->useful.pieces.used; /* bisect_right */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (member < s->useful.firsts.items[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low - 1;
}

static int64_t inside_of(const Subsets *s, int64_t piece, int64_t member)
{
    return member - s->useful.firsts.items[piece] + FIRST;
}

static void mark_bytes(const Fragment *f, const int32_t *row, uint64_t bytes[4])
{
    for (int64_t segment = 0; segment < f->segments; segment++)
        if (row[segment])
            for (int64_t byte = f->bounds[segment]; byte < f->bounds[segment + 1]; byte++)
                bytes[byte >> 6] |= UINT64_C(1) << (byte & 63);
}

static int32_t closure(Subsets *s, int64_t member);

/* Whether no byte that a piece could continue with when it may end also comes after it. */
static int opens(Subsets *s, int64_t piece)
{
    if (s->opens[piece] < 0) {
        uint64_t after[4] = {0, 0, 0, 0};
        const int32_t set = closure(s, target_of(s, piece));
        for (int64_t i = s->set_begin.items[set]; i < s->set_begin.items[set + 1]; i++) {
            const int32_t member = s->arena.items[i];
            handle(s, 1 + s->useful.starts.items[member + 1] - s->useful.starts.items[member]);
            for (int64_t other = s->useful.starts.items[member]; other < s->useful.starts.items[member + 1]; other++)
                for (int word = 0; word < 4; word++)
                    after[word] |= s->facts[kind_of(s, other)].first_bytes[word];
        }
        const uint64_t *end = s->facts[kind_of(s, piece)].end_bytes;
        s->opens[piece] = !((after[0] & end[0]) | (after[1] & end[1]) | (after[2] & end[2]) | (after[3] & end[3]));
    }
    return s->opens[piece];
}

static void add_edge(Subsets *s, int64_t low, int64_t high, int64_t target)
{
    push_word(s, &s->edges, (uint64_t)low << 56 | (uint64_t)high << 48 | (uint64_t)target);
}

/* The edges of a row of a fragment; neighbours with the same target are joined. */
static void add_row(Subsets *s, int64_t piece, const int32_t *row)
{
    const Fragment *f = fragment_of(s, piece);
    for (int64_t segment = 0; segment < f->segments;) {
        const int32_t target = row[segment];
        const int64_t begin = segment++;
        while (segment < f->segments && row[segment] == target)
            segment++;
        if (target)
            add_edge(s, f->bounds[begin], f->bounds[segment] - 1,
                     target == EXIT ? target_of(s, piece) : s->useful.firsts.items[piece] - FIRST + target);
    }
}

static void add_edges(Subsets *s, int64_t member)
{
    if (member < s->nfa.outer) {
        for (int64_t piece = s->useful.starts.items[member]; piece < s->useful.starts.items[member + 1]; piece++) {
            const Fragment *f = fragment_of(s, piece);
            if (f->table)
                add_row(s, piece, f->start);
            else
                add_edge(s, f->data[0], f->data[0],
                         f->states > FIRST ? s->useful.firsts.items[piece] : target_of(s, piece));
        }
        return;
    }
    const int64_t piece = piece_of(s, member), state = inside_of(s, piece, member);
    const Fragment *f = fragment_of(s, piece);
    if (f->table)
        add_row(s, piece, f->table + f->segments * state);
    else
        add_edge(s, f->data[state - 1], f->data[state - 1],
                 state < f->states - 1 ? member + 1 : target_of(s, piece));
}

/* -- dominance */

static int ends_piece(const Fragment *f, int64_t state)
{
    return state == EXIT || f->ends[state];
}

/* Whether all strings that lead from one state out of the piece also do from another.
 *
 * Both are followed side by side. A pair of states refutes the inclusion if the first may end where the second may not,
 * or continues where the second does not; then all pairs on the path to it are refuted too. If no pair does, all hold.
 */
static int includes(Subsets *s, int64_t fragment, int64_t small, int64_t large)
{
    const Fragment *f = s->nfa.fragments + fragment;
    if (small == large || !f->table)
        return small == large;
    Facts *facts = s->facts + fragment;
    if (!facts->has_pairs) {
        facts->has_pairs = 1;
        spend(s, 1 + f->states * f->segments / CELLS);
    }
    const int32_t known = *map_at(s, &facts->pairs, small * f->states + large, UNKNOWN);
    if (known != UNKNOWN)
        return known;
    /* Pairs that were reached, each with the pair before it; the last one first. */
    Ints *pairs = &s->follow_pair, *before = &s->follow_before, *stack = &s->stack;
    const int64_t stack_begin = stack->used;
    pairs->used = before->used = 0;
    map_clear(&s->follow_known);
    push(s, pairs, (int32_t)small);
    push(s, pairs, (int32_t)large);
    push(s, before, -1);
    *map_at(s, &s->follow_known, small * f->states + large, 0) = 0;
    push(s, stack, 0);
    while (stack->used > stack_begin) {
        const int32_t at = stack->items[--stack->used];
        const int64_t ours = pairs->items[2 * at], theirs = pairs->items[2 * at + 1];
        const int32_t holds = *map_at(s, &facts->pairs, ours * f->states + theirs, UNKNOWN);
        if (holds == 1)
            continue;
        const int refuted = holds == 0 || !theirs || (ends_piece(f, ours) && !ends_piece(f, theirs));
        if (refuted || before->used > MAX_PAIRS) {
            for (int32_t step = at; step >= 0; step = before->items[step])
                *map_at(s, &facts->pairs, pairs->items[2 * step] * f->states + pairs->items[2 * step + 1], 0) = 0;
            *map_at(s, &facts->pairs, small * f->states + large, 0) = 0;
            stack->used = stack_begin;
            return 0;
        }
        spend(s, 1 + f->segments / EDGES);
        for (int64_t segment = 0; segment < f->segments; segment++) {
            const int32_t mine = f->table[f->segments * ours + segment];
            const int32_t yours = f->table[f->segments * theirs + segment];
            if (!mine || mine == yours)
                continue;
            int32_t *reached = map_at(s, &s->follow_known, mine * f->states + yours, -1);
            if (*reached >= 0)
                continue;
            *reached = (int32_t)before->used;
            push(s, stack, (int32_t)before->used);
            push(s, pairs, mine);
            push(s, pairs, yours);
            push(s, before, at);
        }
    }
    for (int64_t i = 0; i < before->used; i++)
        *map_at(s, &facts->pairs, pairs->items[2 * i] * f->states + pairs->items[2 * i + 1], 1) = 1;
    return 1;
}

static int by_index(const void *a, const void *b)
{
    const Copy *x = a, *y = b;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return (x->member > y->member) - (x->member < y->member);
}

static int by_ranks(const void *a, const void *b)
{
    const Copy *x = a, *y = b;
    for (int64_t level = 0; level < x->levels; level++)
        if (x->ranks[level] != y->ranks[level])
            return x->ranks[level] < y->ranks[level] ? -1 : 1;
    if (x->inside != y->inside)
        return x->inside < y->inside ? -1 : 1;
    return (x->member > y->member) - (x->member < y->member);
}

static int is_no_later(const Copy *x, const Copy *y)
{
    for (int64_t level = 0; level < x->levels; level++)
        if (x->ranks[level] > y->ranks[level])
            return 0;
    return 1;
}

static int is_same_copy(const Copy *x, const Copy *y)
{
    return !x->levels || !memcmp(x->ranks, y->ranks, (size_t)x->levels * sizeof *x->ranks);
}

static int copy_includes(Subsets *s, const Copy *small, const Copy *large)
{
    if (small->index >= 0)
        return small->inside == large->inside;
    return includes(s, s->nfa.fragment_of[-1 - small->index], small->inside, large->inside);
}

/* Adds, of members at one position, those that no other dominates. */
static void add_minimal(Subsets *s, Copy *copies, int64_t count, Ints *members)
{
    if (count == 1) {
        push(s, members, copies->member);
        return;
    }
    qsort(copies, (size_t)count, sizeof *copies, by_ranks);
    s->kept = grown(s, s->kept, &s->kept_room, count, sizeof *s->kept);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const Copy *copy = copies + i;
        int is_dominated = 0;
        spend(s, kept);
        for (int64_t j = 0; j < kept && !is_dominated; j++)
            is_dominated = is_no_later(s->kept + j, copy) && copy_includes(s, copy, s->kept + j);
        if (is_dominated)
            continue;
        int64_t left = 0;
        for (int64_t j = 0; j < kept; j++)
            if (!is_same_copy(s->kept + j, copy) || !copy_includes(s, s->kept + j, copy))
                s->kept[left++] = s->kept[j];
        s->kept[left++] = *copy;
        kept = left;
    }
    for (int64_t j = 0; j < kept; j++)
        push(s, members, s->kept[j].member);
}

/* Leaves out members that others dominate; ascending before and after. */
static void undominated(Subsets *s, Ints *members)
{
    const int64_t count = members->used, levels = s->nfa.levels;
    if (levels < 0 || count < 2)
        return;
    spend(s, count);
    s->copies = grown(s, s->copies, &s->copy_room, count, sizeof *s->copies);
    for (int64_t i = 0; i < count; i++) {
        const int32_t member = members->items[i];
        Copy *copy = s->copies + i;
        *copy = (Copy){0, 0, member, NULL, levels};
        if (member < s->nfa.outer) {
            copy->index = (int32_t)s->nfa.state_index[member];
            copy->ranks = s->nfa.state_ranks + levels * member;
        } else {
            const int64_t piece = piece_of(s, member);
            const int32_t number = s->useful.pieces.items[piece];
            copy->index = (int32_t)(-1 - s->nfa.piece_index[number]);
            copy->inside = (int32_t)inside_of(s, piece, member);
            copy->ranks = s->nfa.piece_ranks + levels * number;
        }
    }
    qsort(s->copies, (size_t)count, sizeof *s->copies, by_index);
    int64_t different = 1;
    for (int64_t i = 1; i < count; i++)
        different += s->copies[i].index != s->copies[i - 1].index;
    if (different == count)
        return;
    members->used = 0;
    for (int64_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count && s->copies[end].index == s->copies[begin].index; end++)
            ;
        add_minimal(s, s->copies + begin, end - begin, members);
    }
    members->used = sorted_once(members->items, members->used);
}

/* -- from members to states */

static int32_t closure_of_inner(Subsets *s, int64_t member)
{
    const int32_t known = *map_at(s, &s->closure_of, member, -1);
    if (known >= 0)
        return known;
    const int64_t piece = piece_of(s, member);
    Ints *reached = &s->reached;
    if (is_end(fragment_of(s, piece), inside_of(s, piece, member))) {
        const int32_t after = closure(s, target_of(s, piece));
        reached->used = 0;
        handle(s, set_size(s, after));
        for (int64_t i = s->set_begin.items[after]; i < s->set_begin.items[after + 1]; i++)
            push(s, reached, s->arena.items[i]);
    } else {
        reached->used = 0;
    }
    push(s, reached, (int32_t)member); /* no state of the NFA has a number as large */
    undominated(s, reached);
    const int32_t set = interned(s, reached->items, reached->used);
    *map_at(s, &s->closure_of, member, -1) = set;
    return set;
}

static int32_t closure(Subsets *s, int64_t member)
{
    if (member >= s->nfa.outer)
        return closure_of_inner(s, member);
    if (s->closure_of_outer.items[member] >= 0)
        return s->closure_of_outer.items[member];
    Ints *reached = &s->reached, *stack = &s->stack;
    int64_t seen = 1;
    reached->used = stack->used = 0;
    s->seen.items[member] = ++s->seen_now;
    push(s, stack, (int32_t)member);
    while (stack->used) {
        const int32_t here = stack->items[--stack->used];
        if (here == s->nfa.end || leaves(s, here))
            push(s, reached, here);
        handle(s, s->useful.skip_starts.items[here + 1] - s->useful.skip_starts.items[here]);
        for (int64_t i = s->useful.skip_starts.items[here]; i < s->useful.skip_starts.items[here + 1]; i++) {
            const int64_t target = s->useful.skips.items[i];
            if (s->seen.items[target] == s->seen_now)
                continue;
            s->seen.items[target] = s->seen_now;
            seen++;
            push(s, stack, (int32_t)target);
        }
    }
    reached->used = sorted_once(reached->items, reached->used);
    undominated(s, reached);
    if (seen > 1)
        count_members(s, seen);
    return s->closure_of_outer.items[member] = interned(s, reached->items, reached->used);
}

static int32_t id_of(Subsets *s, int64_t member);

static int32_t id_after(Subsets *s, int32_t state)
{
    const int32_t known = *map_at(s, &s->after_piece, state, 0);
    if (known)
        return known;
    const int32_t id = -1 - s->after_count++;
    *map_at(s, &s->after_piece, state, 0) = id;
    put_todo(s, id, closure(s, state));
    return id;
}

static int32_t enter(Subsets *s, int64_t piece, int64_t state)
{
    const Fragment *f = fragment_of(s, piece);
    if (!s->entered[piece])
        s->entered[piece] = zeroed(s, f->states, sizeof **s->entered);
    int32_t *ids = s->entered[piece];
    if (ids[state])
        return ids[state];
    const int through = s->facts[kind_of(s, piece)].has_ends && opens(s, piece);
    Ints *inside = &s->inside, *borders = &s->borders;
    inside->used = borders->used = 0;
    push(s, inside, (int32_t)state);
    if (f->table) {
        s->seen_inside_now++;
        s->seen_inside.items[state] = s->seen_inside_now;
        for (int64_t i = 0; i < inside->used; i++) {
            const int32_t *row = f->table + f->segments * inside->items[i];
            for (int64_t segment = 0; segment < f->segments; segment++) {
                const int32_t target = row[segment];
                if (!target || s->seen_inside.items[target] == s->seen_inside_now)
                    continue;
                s->seen_inside.items[target] = s->seen_inside_now;
                push(s, target == EXIT || (f->ends[target] && !through) ? borders : inside, target);
            }
        }
    } else {
        for (int64_t next = state + 1; next < f->states; next++)
            push(s, inside, (int32_t)next);
        push(s, borders, EXIT);
    }
    for (int64_t i = 0; i < inside->used; i++)
        if (!ids[inside->items[i]])
            ids[inside->items[i]] = s->states++;
    spend(s, SET_STEPS + inside->used / EDGES);
    check_states(s, s->states);
    for (int64_t i = 0; i < borders->used; i++) {
        const int32_t border = borders->items[i];
        ids[border] = id_of(s, border == EXIT ? target_of(s, piece) : s->useful.firsts.items[piece] - FIRST + border);
    }
    if (through && !ids[EXIT])
        ids[EXIT] = id_after(s, target_of(s, piece));
    return ids[state];
}

static int32_t id_of(Subsets *s, int64_t member)
{
    const int32_t known = *map_at(s, &s->id_of, member, 0);
    if (known)
        return known;
    int32_t id;
    if (member < s->nfa.outer) {
        id = id_of_set(s, closure(s, member));
    } else {
        const int64_t piece = piece_of(s, member), state = inside_of(s, piece, member);
        id = is_end(fragment_of(s, piece), state) && !opens(s, piece) ? id_of_set(s, closure(s, member))
                                                                       : enter(s, piece, state);
    }
    *map_at(s, &s->id_of, member, 0) = id;
    return id;
}

static int32_t id_of_all(Subsets *s, Ints *targets)
{
    if (targets->used == 1)
        return id_of(s, targets->items[0]);
    const int32_t key = interned(s, targets->items, targets->used);
    if (s->id_of_targets.items[key])
        return s->id_of_targets.items[key];
    const int64_t count = targets->used;
    int32_t id;
    undominated(s, targets);
    if (targets->used == 1) {
        id = id_of(s, targets->items[0]);
    } else {
        Ints *united = &s->united;
        united->used = 0;
        for (int64_t i = 0; i < targets->used; i++) {
            const int32_t set = closure(s, targets->items[i]);
            handle(s, set_size(s, set));
            for (int64_t j = s->set_begin.items[set]; j < s->set_begin.items[set + 1]; j++)
                push(s, united, s->arena.items[j]);
        }
        united->used = sorted_once(united->items, united->used);
        undominated(s, united);
        id = id_of_set(s, interned(s, united->items, united->used));
    }
    s->id_of_targets.items[key] = id;
    count_members(s, count);
    return id;
}

/* -- rows */

static int edge_low(uint64_t edge)
{
    return (int)(edge >> 56);
}

static int edge_high(uint64_t edge)
{
    return (int)(edge >> 48 & 255);
}

static int32_t edge_target(uint64_t edge)
{
    return (int32_t)(edge & UINT64_C(0xffffffffffff));
}

static void put_row(Subsets *s, int32_t state, int low, int high, int32_t target)
{
    s->rows = grown(s, s->rows, &s->row_room, s->row_used + 1, sizeof *s->rows);
    s->rows[s->row_used++] = (Row){state, low, high, target};
}

/* Ranges that overlap are cut where others begin or end. */
static void sweep(Subsets *s, int32_t state)
{
    int64_t begins[258] = {0};
    uint8_t is_cut[257] = {0};
    int cuts[257], cut_of[257], count = 0;
    for (int64_t i = 0; i < s->edges.used; i++)
        is_cut[edge_low(s->edges.items[i])] = is_cut[edge_high(s->edges.items[i]) + 1] = 1;
    for (int byte = 0; byte <= 256; byte++) {
        cut_of[byte] = count;
        if (is_cut[byte])
            cuts[count++] = byte;
    }
    for (int64_t i = 0; i < s->edges.used; i++) {
        const uint64_t edge = s->edges.items[i];
        for (int cut = cut_of[edge_low(edge)]; cut < cut_of[edge_high(edge) + 1]; cut++)
            begins[cut + 1]++;
        handle(s, cut_of[edge_high(edge) + 1] - cut_of[edge_low(edge)]);
    }
    for (int cut = 0; cut < count; cut++)
        begins[cut + 1] += begins[cut];
    s->swept.items = grown(s, s->swept.items, &s->swept.room, begins[count] + 1, sizeof *s->swept.items);
    int64_t filled[257];
    memcpy(filled, begins, sizeof filled);
    for (int64_t i = 0; i < s->edges.used; i++) {
        const uint64_t edge = s->edges.items[i];
        for (int cut = cut_of[edge_low(edge)]; cut < cut_of[edge_high(edge) + 1]; cut++)
            s->swept.items[filled[cut]++] = edge_target(edge);
    }
    int64_t sizes[257], steps = 0;
    for (int cut = 0; cut < count; cut++) {
        sizes[cut] = sorted_once(s->swept.items + begins[cut], begins[cut + 1] - begins[cut]);
        steps += sizes[cut];
    }
    spend(s, steps);
    for (int cut = 0; cut < count; cut++) {
        if (!sizes[cut])
            continue;
        s->targets.used = 0;
        for (int64_t i = 0; i < sizes[cut]; i++)
            push(s, &s->targets, s->swept.items[begins[cut] + i]);
        put_row(s, state, cuts[cut], cuts[cut + 1] - 1, id_of_all(s, &s->targets));
    }
}

static void add_rows(Subsets *s, int32_t state, int32_t set)
{
    Words *edges = &s->edges;
    edges->used = 0;
    for (int64_t i = s->set_begin.items[set]; i < s->set_begin.items[set + 1]; i++)
        add_edges(s, s->arena.items[i]);
    spend(s, SET_STEPS + set_size(s, set) + edges->used);
    if (edges->used > 1)
        qsort(edges->items, (size_t)edges->used, sizeof *edges->items, ascending_words);
    int64_t kept = 0;
    int reached = -1, overlaps = 0;
    for (int64_t i = 0; i < edges->used; i++) {
        const uint64_t edge = edges->items[i];
        if (kept && edge == edges->items[kept - 1])
            continue;
        if (!kept || edge >> 48 != edges->items[kept - 1] >> 48) {
            overlaps |= edge_low(edge) <= reached;
            reached = edge_high(edge) > reached ? edge_high(edge) : reached;
        }
        edges->items[kept++] = edge;
    }
    edges->used = kept;
    if (overlaps) {
        sweep(s, state);
        return;
    }
    for (int64_t begin = 0, end; begin < kept; begin = end) {
        const uint64_t edge = edges->items[begin];
        s->targets.used = 0;
        for (end = begin; end < kept && edges->items[end] >> 48 == edge >> 48; end++)
            push(s, &s->targets, edge_target(edges->items[end]));
        put_row(s, state, edge_low(edge), edge_high(edge), id_of_all(s, &s->targets));
    }
}

/* -- what Python calls */

PUBLIC void hf_guided_subsets_end(Subsets *s)
{
    Ints *lists[] = {&s->useful.pieces, &s->useful.starts, &s->useful.skips, &s->useful.skip_starts, &s->useful.firsts,
                     &s->arena, &s->set_begin, &s->buckets, &s->id_of_set, &s->id_of_targets, &s->closure_of_outer,
                     &s->seen, &s->targets, &s->united, &s->reached, &s->stack, &s->inside, &s->borders,
                     &s->seen_inside, &s->swept, &s->follow_pair, &s->follow_before};
    Map *maps[] = {&s->closure_of, &s->id_of, &s->after_piece, &s->follow_known};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        map_free(maps[i]);
    for (int64_t piece = 0; s->entered && piece < s->useful.pieces.used; piece++)
        free(s->entered[piece]);
    for (int64_t fragment = 0; s->facts && fragment < s->nfa.fragment_count; fragment++)
        map_free(&s->facts[fragment].pairs);
    free(s->set_hash.items);
    free(s->edges.items);
    free(s->entered);
    free(s->opens);
    free(s->facts);
    free(s->todo);
    free(s->rows);
    free(s->copies);
    free(s->kept);
    free(s);
}

static void prepare(Subsets *s)
{
    int64_t largest = 0;
    push(s, &s->set_begin, 0);
    filled(s, &s->closure_of_outer, s->nfa.outer, -1);
    filled(s, &s->seen, s->nfa.outer, 0);
    s->entered = zeroed(s, s->useful.pieces.used, sizeof *s->entered);
    s->opens = zeroed(s, s->useful.pieces.used, sizeof *s->opens);
    memset(s->opens, 0xff, (size_t)s->useful.pieces.used * sizeof *s->opens);
    s->facts = zeroed(s, s->nfa.fragment_count, sizeof *s->facts);
    for (int64_t i = 0; i < s->nfa.fragment_count; i++) {
        const Fragment *f = s->nfa.fragments + i;
        Facts *facts = s->facts + i;
        if (!f->table) {
            facts->first_bytes[f->data[0] >> 6] |= UINT64_C(1) << (f->data[0] & 63);
            continue;
        }
        mark_bytes(f, f->start, facts->first_bytes);
        for (int64_t state = FIRST; state < f->states; state++) {
            if (!f->ends[state])
                continue;
            facts->has_ends = 1;
            mark_bytes(f, f->table + f->segments * state, facts->end_bytes);
        }
        largest = f->states > largest ? f->states : largest;
    }
    filled(s, &s->seen_inside, largest, 0);
}

static void construct(Subsets *s)
{
    const int32_t first = closure(s, s->nfa.start);
    if (set_size(s, first))
        id_of_set(s, first);
    for (int64_t i = 0; i < s->todo_used; i++) {
        const Todo todo = s->todo[i];
        check_states(s, s->states);
        add_rows(s, todo.state, todo.set);
    }
    check_states(s, s->states);
}

static void find_classes(Subsets *s)
{
    uint8_t is_cut[257] = {0};
    for (int64_t i = 0; i < s->row_used; i++)
        is_cut[s->rows[i].low] = is_cut[s->rows[i].high + 1] = 1;
    for (int64_t piece = 0; piece < s->useful.pieces.used; piece++) {
        const Fragment *f = fragment_of(s, piece);
        if (!s->entered[piece])
            continue;
        for (int64_t i = 1; !f->table && i < f->states - 1; i++)
            is_cut[f->data[i]] = is_cut[f->data[i] + 1] = 1;
        for (int64_t i = 0; f->table && i <= f->segments; i++)
            is_cut[f->bounds[i]] = 1;
    }
    for (int byte = 0; byte < 256; byte++) {
        s->columns += byte == 0 || is_cut[byte];
        s->byte_class[byte] = (uint8_t)(s->columns - 1);
    }
}

/* Counts the work of the copies, as many of a fragment at once as have `CELLS_AT_ONCE` entries. */
static void count_copies(Subsets *s)
{
    for (int64_t piece = 0; piece < s->useful.pieces.used; piece++)
        if (s->entered[piece] && fragment_of(s, piece)->table)
            s->facts[kind_of(s, piece)].copies[opens(s, piece)]++;
    for (int64_t fragment = 0; fragment < s->nfa.fragment_count; fragment++) {
        const int64_t size = s->nfa.fragments[fragment].states * s->columns;
        const int64_t step = CELLS_AT_ONCE / size > 1 ? CELLS_AT_ONCE / size : 1;
        for (int is_open = 0; is_open < 2; is_open++)
            for (int64_t left = s->facts[fragment].copies[is_open]; left > 0; left -= step)
                spend(s, 1 + 2 * (left < step ? left : step) * size / CELLS);
    }
}

static int64_t row_count(const Subsets *s)
{
    return s->states + s->after_count;
}

static int64_t row_of(const Subsets *s, int32_t state)
{
    return state < 0 ? row_count(s) + state : state;
}

/* Constructs it, as far as the limits allow; `nfa` and its arrays have to outlive it.
 *
 * counts  (5) written: a status, the work, states, members of all sets, and columns of the table
 *
 * Returns it, for the functions below; NULL if there is no memory.
 */
PUBLIC Subsets *hf_guided_subsets_begin(const Nfa *nfa, int64_t *counts)
{
    Subsets *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->nfa = *nfa;
    s->states = 1; /* state 0 is dead */
    if (!setjmp(s->ended)) {
        find_useful(s);
        prepare(s);
        construct(s);
        if (s->states > 1) {
            find_classes(s);
            spend(s, 1 + row_count(s) * s->columns / CELLS);
            count_copies(s);
        }
    }
    counts[0] = s->status;
    counts[1] = s->work;
    counts[2] = s->states;
    counts[3] = s->members;
    counts[4] = s->columns;
    return s;
}

static void write_copy(const Subsets *s, int64_t piece, int32_t *table, uint8_t *accepting)
{
    const Fragment *f = fragment_of(s, piece);
    const int32_t *ids = s->entered[piece];
    const int32_t exit = ids[EXIT];
    const int64_t exit_row = row_of(s, exit);
    for (int64_t state = FIRST; state < f->states; state++) {
        const int is_open_end = is_end(f, state) && s->opens[piece] == 1;
        if (!ids[state] || (is_end(f, state) && !is_open_end))
            continue;
        int32_t *row = table + s->columns * ids[state];
        if (!f->table) {
            const int32_t target = state < f->states - 1 ? ids[state + 1] : exit;
            row[s->byte_class[f->data[state - 1]]] = target;
            continue;
        }
        for (int64_t segment = 0; segment < f->segments; segment++) {
            const int32_t to = f->table[f->segments * state + segment];
            const int64_t begin = s->byte_class[f->bounds[segment]], end = s->byte_class[f->bounds[segment + 1] - 1];
            for (int64_t column = begin; column <= end; column++)
                row[column] = to ? ids[to] : is_open_end ? table[s->columns * exit_row + column] : 0;
        }
        if (is_open_end)
            accepting[ids[state]] = accepting[exit_row];
    }
}

/* Writes the table.
 *
 * byte_class  (256) written
 * table       (rows, columns) zeros, written
 * accepting   (rows) zeros, written
 */
static void write_subsets(const Subsets *s, uint8_t *byte_class, int32_t *table, uint8_t *accepting)
{
    memcpy(byte_class, s->byte_class, sizeof s->byte_class);
    for (int64_t i = 0; i < s->row_used; i++) {
        const Row *row = s->rows + i;
        int32_t *cells = table + s->columns * row_of(s, row->state);
        for (int64_t column = s->byte_class[row->low]; column <= s->byte_class[row->high]; column++)
            cells[column] = row->target;
    }
    for (int64_t i = 0; i < s->todo_used; i++) {
        const Todo *todo = s->todo + i;
        for (int64_t j = s->set_begin.items[todo->set]; j < s->set_begin.items[todo->set + 1]; j++)
            if (s->arena.items[j] == s->nfa.end)
                accepting[row_of(s, todo->state)] = 1;
    }
    for (int64_t piece = 0; piece < s->useful.pieces.used; piece++)
        if (s->entered[piece])
            write_copy(s, piece, table, accepting);
}

/* The minimal automaton; for `counts` and what is returned see `minimal_of`. */
PUBLIC Minimal *hf_guided_subsets_minimal(const Subsets *s, int64_t *counts)
{
    const size_t rows = (size_t)row_count(s);
    int32_t *table = calloc(rows * (size_t)s->columns, sizeof *table);
    uint8_t *accepting = calloc(rows, 1), byte_class[256];
    Minimal *minimal = NULL;
    counts[0] = NO_MEMORY;
    if (table && accepting) {
        write_subsets(s, byte_class, table, accepting);
        minimal = minimal_of(table, s->states, s->columns, accepting, byte_class, 1, s->nfa.look, counts);
    }
    free(table);
    free(accepting);
    return minimal;
}
