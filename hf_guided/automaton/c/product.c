/* The product of two automata (products.py), and which states of a table are productive (byte_dfa.py).
 *
 * Pairs of states are numbered as they are found, those of one batch in order.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "public.h"

/* As in products.py. */
typedef struct {
    const int32_t *first, *second;               /* (states, classes) their tables; state 0 is dead */
    const int64_t *first_class, *second_class;   /* (classes) of each class of the product */
    int64_t first_classes, second_classes, classes;
    int64_t width;                               /* states of the second; a pair is first * width + second */
    int64_t start;                               /* a pair, not 0 */
    int64_t needs_second;                        /* whether a pair is dead where the second is, as where the first is */
    int64_t batch;                               /* pairs that are handled at once */
    int64_t max_pairs, max_work;
    int64_t cells, edges;                        /* of a step of work: entries sorted, entries looked up */
    Look look;
} Automata;

typedef struct {
    int64_t pair, seen; /* `seen` is the last batch that led here */
    int32_t number;
} Found;

typedef struct {
    const Automata *given;
    Found *found;      /* in the order in which they were met */
    int64_t *pairs;    /* (pairs) by number */
    int32_t *rows;     /* (pairs, classes) places in `found` */
    int32_t *buckets;  /* places in `found`, -1 where there is none */
    int64_t met, numbered, room, row_room, bucket_room, work, since_look;
    int64_t *fresh;    /* pairs met in this batch */
} Product;

enum { NO_MEMORY = -1, STOPPED = -2 };

static int has_room(void **data, int64_t *room, int64_t needed, size_t each)
{
    int64_t larger = *room ? *room : 64;
    void *moved;
    if (needed <= *room)
        return 1;
    while (larger < needed)
        larger *= 2;
    if (larger > INT64_MAX / (int64_t)each || !(moved = realloc(*data, (size_t)larger * each)))
        return 0;
    *data = moved;
    *room = larger;
    return 1;
}

static int64_t bucket_of(const Product *p, int64_t pair)
{
    const uint64_t most = (uint64_t)p->bucket_room - 1;
    uint64_t at = mixed((uint64_t)pair) & most;
    while (p->buckets[at] >= 0 && p->found[p->buckets[at]].pair != pair)
        at = (at + 1) & most;
    return (int64_t)at;
}

/* The place of a pair in `found`; -1 if there is no memory. */
static int64_t place_of(Product *p, int64_t pair)
{
    int64_t at;
    if (2 * (p->met + 1) > p->bucket_room) {
        const int64_t room = p->bucket_room ? 2 * p->bucket_room : 256;
        int32_t *buckets = malloc((size_t)room * sizeof *buckets);
        if (!buckets || p->met >= INT32_MAX) {
            free(buckets);
            return -1;
        }
        memset(buckets, 0xff, (size_t)room * sizeof *buckets);
        free(p->buckets);
        p->buckets = buckets;
        p->bucket_room = room;
        for (int64_t i = 0; i < p->met; i++)
            p->buckets[bucket_of(p, p->found[i].pair)] = (int32_t)i;
    }
    at = bucket_of(p, pair);
    if (p->buckets[at] < 0) {
        if (!has_room((void **)&p->found, &p->room, p->met + 1, sizeof *p->found))
            return -1;
        p->found[p->met] = (Found){pair, -1, -1};
        p->buckets[at] = (int32_t)p->met++;
    }
    return p->buckets[at];
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Numbers the pairs from a place in `found` on, in order. */
static int number(Product *p, int64_t from)
{
    const int64_t fresh = p->met - from;
    int64_t *pairs = realloc(p->pairs, (size_t)(p->numbered + fresh + 1) * sizeof *pairs);
    if (!pairs)
        return NO_MEMORY;
    p->pairs = pairs;
    for (int64_t i = 0; i < fresh; i++)
        pairs[p->numbered + i] = p->found[from + i].pair;
    qsort(pairs + p->numbered, (size_t)fresh, sizeof *pairs, ascending);
    for (int64_t i = 0; i < fresh; i++, p->numbered++)
        p->found[p->buckets[bucket_of(p, pairs[p->numbered])]].number = (int32_t)p->numbered;
    return 0;
}

/* One batch of pairs: where they lead. */
static int follow(Product *p, int64_t begin, int64_t end)
{
    const Automata *given = p->given;
    const int64_t met = p->met, classes = given->classes;
    int64_t distinct = 0;
    if (!has_room((void **)&p->rows, &p->row_room, end * classes, sizeof *p->rows))
        return NO_MEMORY;
    for (int64_t i = begin; i < end; i++) {
        const int32_t *ours = given->first + given->first_classes * (p->pairs[i] / given->width);
        const int32_t *theirs = given->second + given->second_classes * (p->pairs[i] % given->width);
        for (int64_t j = 0; j < classes; j++) {
            const int64_t one = ours[given->first_class[j]], other = theirs[given->second_class[j]];
            const int is_dead = !one || (!other && given->needs_second);
            const int64_t place = place_of(p, is_dead ? 0 : one * given->width + other);
            if (place < 0)
                return NO_MEMORY;
            distinct += p->found[place].seen != begin;
            p->found[place].seen = begin;
            p->rows[i * classes + j] = (int32_t)place;
        }
        p->since_look += classes;
        if (p->since_look >= LOOK_AT) {
            p->since_look = 0;
            if (given->look())
                return STOPPED;
        }
    }
    p->work += 1 + (end - begin) * classes / given->cells + distinct / given->edges;
    return number(p, met);
}

PUBLIC void hf_guided_product_end(Product *p)
{
    free(p->found);
    free(p->pairs);
    free(p->rows);
    free(p->buckets);
    free(p);
}

/* The product, from the start on; counts the work, and ends where there is too much of it, or too many pairs.
 *
 * counts  (3) written: the work, the pairs, and a status: -1 no memory, -2 `look` stopped it, else 0
 *
 * Returns it, for the two functions below; NULL if there is no memory.
 */
PUBLIC Product *hf_guided_product_begin(const Automata *given, int64_t *counts)
{
    Product *p = calloc(1, sizeof *p);
    int64_t done = 1; /* the dead pair leads nowhere */
    if (!p)
        return NULL;
    p->given = given;
    counts[2] = NO_MEMORY;
    if (place_of(p, 0) == 0 && !number(p, 0) && place_of(p, given->start) == 1 && !number(p, 1) &&
        has_room((void **)&p->rows, &p->row_room, given->classes, sizeof *p->rows)) {
        memset(p->rows, 0, (size_t)given->classes * sizeof *p->rows);
        counts[2] = 0;
    }
    while (!counts[2] && done < p->numbered && p->work <= given->max_work && p->numbered <= given->max_pairs) {
        const int64_t end = p->numbered - done > given->batch ? done + given->batch : p->numbered;
        counts[2] = follow(p, done, end);
        done = end;
    }
    counts[0] = p->work;
    counts[1] = p->numbered;
    return p;
}

/* table (pairs, classes) and pairs (pairs) are written. */
PUBLIC void hf_guided_product_write(const Product *p, int32_t *table, int64_t *pairs)
{
    for (int64_t i = 0; i < p->numbered * p->given->classes; i++)
        table[i] = p->found[p->rows[i]].number;
    memcpy(pairs, p->pairs, (size_t)p->numbered * sizeof *pairs);
}

/* Which states of a table reach the end.
 *
 * table      (states, classes) where each class of bytes leads; state 0 is dead
 * accepting  (states)
 * productive (states) written; zero for the dead state
 *
 * Returns how many moves there are but those to the dead state; -1 if there is no memory.
 */
PUBLIC int64_t hf_guided_productive(const int32_t *table, int64_t states, int64_t classes, const uint8_t *accepting,
                                    uint8_t *productive)
{
    int64_t *begin = calloc((size_t)states + 2, sizeof *begin), moves = 0, todo_count = 0;
    int32_t *before = NULL, *todo = malloc((size_t)states * sizeof *todo);
    for (int64_t i = 0; begin && i < states * classes; i++)
        if (table[i])
            begin[table[i] + 2]++, moves++;
    before = malloc((size_t)(moves + 1) * sizeof *before);
    if (!begin || !before || !todo) {
        moves = NO_MEMORY;
    } else {
        for (int64_t state = 0; state < states; state++)
            begin[state + 2] += begin[state + 1];
        for (int64_t i = 0; i < states * classes; i++) /* afterwards `begin` is one place further than it was */
            if (table[i])
                before[begin[table[i] + 1]++] = (int32_t)(i / classes);
        for (int64_t state = 0; state < states; state++)
            if ((productive[state] = state && accepting[state]))
                todo[todo_count++] = (int32_t)state;
        while (todo_count) {
            const int32_t state = todo[--todo_count];
            for (int64_t at = begin[state]; at < begin[state + 1]; at++)
                if (!productive[before[at]]) {
                    productive[before[at]] = 1;
                    todo[todo_count++] = before[at];
                }
        }
    }
    free(begin);
    free(before);
    free(todo);
    return moves;
}
