/* Whether any string is in some languages, and not in others: their product, as far as it takes to find one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "public.h"

enum { EDGES = 8 }; /* limits.py */
enum { NO_MEMORY = -1, TOO_MUCH_WORK = -2 };

/* An automaton; as in emptiness.py. */
typedef struct {
    const void *table; /* (states, classes) where each class of bytes leads; state 0 is dead */
    const uint8_t *byte_class, *accepting;
    int64_t is_wide;   /* whether the table is uint32, and not uint16 */
    int64_t classes, start;
    int64_t is_excluded; /* whether its strings are not wanted */
} Part;

/* A row of `found` has a state of each part, then the characters so far, the row to be looked at after this one, and the
 * row and the byte that led here, -1 to the first one. */
typedef struct {
    const Part *parts;
    int64_t count, low, high; /* of parts; characters, `high` -1 is no bound */
    int32_t *found, *buckets; /* buckets hold the numbers of rows, -1 where there is none */
    int64_t met, room;
} Search;

enum { BELOW = 1, BEFORE = 2, BYTE = 3 }; /* columns after the characters */

static int32_t *row_at(const Search *s, int64_t number)
{
    return s->found + (s->count + 4) * number;
}

/* Where the number of a row is, or would be. */
static int32_t *bucket_of(const Search *s, const int32_t *row)
{
    const uint64_t most = 2 * (uint64_t)s->room - 1;
    uint64_t at = 0;
    for (int64_t i = 0; i <= s->count; i++)
        at = mixed(at + (uint64_t)row[i] + 1);
    for (at &= most; s->buckets[at] >= 0; at = (at + 1) & most)
        if (!memcmp(row_at(s, s->buckets[at]), row, (size_t)(s->count + 1) * sizeof *row))
            break;
    return s->buckets + at;
}

/* Makes room for another row. */
static int grow(Search *s)
{
    const int64_t room = s->room ? 2 * s->room : 64;
    int32_t *found = realloc(s->found, (size_t)(room * (s->count + 4)) * sizeof *found), *buckets;
    if (!found)
        return 0;
    s->found = found;
    if (room > INT32_MAX / 2 || !(buckets = malloc(2 * (size_t)room * sizeof *buckets)))
        return 0;
    memset(buckets, 0xff, 2 * (size_t)room * sizeof *buckets);
    free(s->buckets);
    s->buckets = buckets;
    s->room = room;
    for (int64_t i = 0; i < s->met; i++)
        *bucket_of(s, row_at(s, i)) = (int32_t)i;
    return 1;
}

/* Whether the string that led to a row is wanted. */
static int is_wanted(const Search *s, const int32_t *row)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->parts[i].accepting[row[i]] == s->parts[i].is_excluded)
            return 0;
    return row[s->count] >= s->low;
}

/* Where a byte leads; 0 if no wanted string begins so. */
static int follow(const Search *s, const int32_t *row, int byte, int32_t *next)
{
    const int32_t characters = row[s->count];
    for (int64_t i = 0; i < s->count; i++) {
        const Part *part = s->parts + i;
        const int64_t at = part->classes * row[i] + part->byte_class[byte];
        next[i] = part->is_wide ? (int32_t)((const uint32_t *)part->table)[at] : ((const uint16_t *)part->table)[at];
        if (!next[i] && !part->is_excluded)
            return 0;
    }
    next[s->count] = characters;
    if ((byte & 0xC0) != 0x80 && (s->high >= 0 || characters < s->low)) /* the first byte of a character */
        next[s->count]++;
    return s->high < 0 || next[s->count] <= s->high;
}

/* A byte of each class that no part tells apart; returns how many. */
static int choose_bytes(const Search *s, uint8_t *bytes)
{
    int chosen = 0;
    for (int byte = 0; byte < 256; byte++) {
        int j = 0;
        for (; j < chosen; j++) {
            int64_t i = 0;
            while (i < s->count && s->parts[i].byte_class[byte] == s->parts[i].byte_class[bytes[j]])
                i++;
            if (i == s->count && ((byte & 0xC0) == 0x80) == ((bytes[j] & 0xC0) == 0x80))
                break;
        }
        if (j == chosen)
            bytes[chosen++] = (uint8_t)byte;
    }
    return chosen;
}

/* Adds a row, unless it is there; returns whether its string is wanted, or that there is no memory. */
static int add(Search *s, const int32_t *row, int32_t before, int byte, int32_t *top)
{
    int32_t *added;
    if (s->met == s->room && !grow(s))
        return NO_MEMORY;
    if (*bucket_of(s, row) >= 0)
        return 0;
    added = row_at(s, s->met);
    memcpy(added, row, (size_t)(s->count + 1) * sizeof *row);
    added[s->count + BELOW] = *top;
    added[s->count + BEFORE] = before;
    added[s->count + BYTE] = byte;
    *bucket_of(s, row) = *top = (int32_t)s->met++;
    return is_wanted(s, row);
}

/* Writes the first bytes of the string that led to the newest row; returns how long it is. */
static int64_t write_text(const Search *s, uint8_t *text, int64_t room)
{
    int64_t length = 0;
    for (int64_t at = s->met - 1; row_at(s, at)[s->count + BEFORE] >= 0; at = row_at(s, at)[s->count + BEFORE])
        length++;
    for (int64_t at = s->met - 1, i = length; i--; at = row_at(s, at)[s->count + BEFORE])
        if (i < room)
            text[i] = (uint8_t)row_at(s, at)[s->count + BYTE];
    return length;
}

/* A string that all parts have but the excluded ones, which do not have it.
 *
 * parts, count  one at least is not excluded, and has whole characters alone
 * low, high     how many characters there may be; -1 is no bound
 * work          (1) written: the steps that it took
 * text          (room) written: its first bytes
 *
 * Returns how many bytes it has, plus one; 0 if there is none, -1 if there is no memory, and -2 if it takes more than
 * `max_work` steps.
 */
PUBLIC int64_t hf_guided_common_string(const Part *parts, int64_t count, int64_t low, int64_t high, int64_t max_work,
                                       int64_t *work, uint8_t *text, int64_t room)
{
    Search s = {parts, count, low, high, NULL, NULL, 0, 0};
    int32_t *next = calloc((size_t)count + 1, sizeof *next), top = -1;
    uint8_t bytes[256];
    const int classes = choose_bytes(&s, bytes);
    int64_t found = NO_MEMORY;
    *work = 1 + 256 * count / EDGES;
    if (next) {
        for (int64_t i = 0; i < count; i++)
            next[i] = (int32_t)parts[i].start;
        found = add(&s, next, -1, 0, &top);
    }
    while (!found && top >= 0) { /* the newest first: a string is mostly at the far end */
        const int32_t here = top;
        top = row_at(&s, here)[count + BELOW];
        for (int j = 0; !found && j < classes; j++)
            if (follow(&s, row_at(&s, here), bytes[j], next))
                found = add(&s, next, here, bytes[j], &top);
        *work += 1 + classes * (count + 1) / EDGES;
        if (!found && *work > max_work)
            found = TOO_MUCH_WORK;
    }
    if (found == 1)
        found += write_text(&s, text, room);
    free(s.found);
    free(s.buckets);
    free(next);
    return found;
}
