/* Finds the shortest ways from the states of a component to its end: see frame_exits.py.
 *
 * Each state has one move on a shortest way, in bytes; a call weighs as many as are enough for the callee.
 *
 * White space between the parts of a text is left to choose: where a space leaves as many bytes to the end, the ways
 * with it and without are looked at, for vocabularies have tokens such as `": "`.
 */
#include "frames.h"

enum { MOST_SPACES = 4 }; /* in a row */
enum { MOVES_BITS = 24 }; /* of the moves to the end, beside the bytes */

typedef struct {
    const Component *c;
    const int32_t *weights; /* (callees) */
    const int32_t *byte_of; /* (classes) the byte that is written, or -1 */
    int64_t *far;           /* (states) bytes to the end, and then moves, in one number */
    uint8_t *counts;
} Ways;

static const int64_t never = (int64_t)UNREACHABLE << MOVES_BITS;

/* Whether a move is on a way with the fewest characters of a counted string: that always fits its upper bound. */
static int has_fewest_characters(const Component *c, int32_t state, int32_t to)
{
    return !c->begins || c->owed[to] + c->begins[state] == c->owed[state];
}

/* The length of the way that begins with a byte, or with a call. */
static int64_t by_byte(const Ways *w, int32_t state, int64_t class)
{
    const int32_t to = w->c->table[w->c->classes * state + class];
    const int is_allowed = to && w->byte_of[class] >= 0 && has_fewest_characters(w->c, state, to);
    return is_allowed ? w->far[to] + ((int64_t)1 << MOVES_BITS) + 1 : never;
}

static int64_t by_call(const Ways *w, int64_t call)
{
    return w->far[w->c->calls[2 * call + 1]] + ((int64_t)w->weights[w->c->calls[2 * call]] << MOVES_BITS) + 1;
}

/* The states, each after most of those that it leads to. Returns how many are reached from the start. */
static int64_t last_first(const Component *c, int32_t *order, int32_t *stack, int32_t *next)
{
    int64_t depth = 1, count = 0;
    memset(next, 0xff, (size_t)c->states * sizeof *next); /* -1: not reached; then the next of its moves */
    stack[0] = (int32_t)c->start;
    next[c->start] = 0;
    while (depth) {
        const int32_t state = stack[depth - 1];
        const int64_t begin = c->call_begin[state], calls = c->call_begin[state + 1] - begin;
        int32_t to = 0;
        while (next[state] < c->classes + calls && (!to || next[to] >= 0)) {
            const int64_t at = next[state]++;
            to = at < c->classes ? c->table[c->classes * state + at] : c->calls[2 * (begin + at - c->classes) + 1];
        }
        if (to && next[to] < 0)
            stack[depth++] = to, next[to] = 0;
        else
            order[count++] = stack[--depth];
    }
    return count;
}

/* Finds all lengths. */
static void measure(Ways *w, const int32_t *order, int64_t count)
{
    const Component *c = w->c;
    int changed = 1;
    for (int64_t state = 0; state < c->states; state++)
        w->far[state] = never;
    while (changed) {
        changed = 0;
        for (int64_t i = 0; i < count; i++) {
            const int32_t state = order[i];
            int64_t best = c->accepting[state] ? 0 : w->far[state], length;
            uint8_t counts = w->counts[state];
            for (int64_t class = 0; class < c->classes; class++) {
                if ((length = by_byte(w, state, class)) < best)
                    best = length;
                counts |= w->counts[c->table[c->classes * state + class]];
            }
            for (int64_t call = c->call_begin[state]; call < c->call_begin[state + 1]; call++) {
                const int64_t callee = c->callees[c->calls[2 * call]];
                if ((length = by_call(w, call)) < best)
                    best = length;
                counts |= callee == END || (callee == BEGIN && w->counts[c->calls[2 * call + 1]]);
            }
            changed |= best < w->far[state] || counts != w->counts[state];
            w->far[state] = best;
            w->counts[state] = counts;
        }
    }
}

static int32_t move_from(const Ways *w, int32_t state, const int32_t *letters)
{
    const Component *c = w->c;
    if (c->accepting[state])
        return ENDS;
    for (; *letters >= 0; letters++)
        if (by_byte(w, state, c->class_of[*letters]) == w->far[state])
            return *letters;
    for (int64_t call = c->call_begin[state]; call < c->call_begin[state + 1]; call++)
        if (by_call(w, call) == w->far[state])
            return CALLS + (int32_t)call;
    return ENDS; /* there is no way */
}

/* The callee of a move, or what else it is. */
static int64_t meaning(const Component *c, int32_t move)
{
    return move < CALLS ? move : CALLS + c->callees[c->calls[2 * (int64_t)(move - CALLS)]];
}

/* The state after a space that leaves as many bytes to the end; 0 if there is none, or the space is a part of a name.
 *
 * The move there is the same: else a way might be in ever more components after a space in each.
 */
static int32_t after_space(const Component *c, const int32_t *sizes, const int32_t *moves, int32_t state)
{
    const int32_t to = c->table[c->classes * state + c->class_of[' ']];
    const int is_apart = moves[state] != '"' && sizes[state] < UNREACHABLE;
    const int is_same = to && to != state && sizes[to] == sizes[state];
    return is_apart && is_same && meaning(c, moves[to]) == meaning(c, moves[state]) ? to : 0;
}

/* Finds the exits of a component.
 *
 * weights  (callees) bytes that are enough for each; 0 for the marks of registers
 * letters  all bytes, those that are preferred first, and then -1
 * exits    (4, states) written: see the rows
 *
 * Returns the largest size that is no UNREACHABLE, or that there is no memory.
 */
PUBLIC int64_t hf_guided_find_exits(const Component *c, const int32_t *weights, const int32_t *letters, int32_t *exits)
{
    const int64_t states = c->states;
    int64_t *far = malloc((size_t)states * sizeof *far), most = 0;
    int32_t *scratch = malloc((size_t)(3 * states) * sizeof *scratch), byte_of[256];
    uint8_t *counts = calloc((size_t)states, 1);
    Ways w = {c, weights, byte_of, far, counts};
    if (!far || !scratch || !counts)
        most = NO_MEMORY;
    else {
        for (int class = 0; class < 256; class++)
            byte_of[class] = -1;
        for (const int32_t *letter = letters; *letter >= 0; letter++)
            if (byte_of[c->class_of[*letter]] < 0)
                byte_of[c->class_of[*letter]] = *letter;
        measure(&w, scratch, last_first(c, scratch, scratch + states, scratch + 2 * states));
        for (int32_t state = 0; state < states; state++) {
            const int64_t size = far[state] >> MOVES_BITS;
            exits[SIZE * states + state] = size < UNREACHABLE ? (int32_t)size : UNREACHABLE;
            exits[MOVE * states + state] = move_from(&w, state, letters);
            exits[COUNTS * states + state] = counts[state];
            if (size < UNREACHABLE && size > most)
                most = size;
        }
        for (int32_t state = 0; state < states; state++) {
            int32_t at = byte_of[c->class_of[' ']] < 0 || (c->begins && counts[state]) ? 0 : state;
            const int32_t first = at ? after_space(c, exits, exits + MOVE * states, at) : 0;
            for (int spaces = 0; at && spaces <= MOST_SPACES; spaces++)
                at = after_space(c, exits, exits + MOVE * states, at);
            exits[SPACE * states + state] = at ? 0 : first;
        }
    }
    free(far);
    free(scratch);
    free(counts);
    return most;
}
