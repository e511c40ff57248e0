/* All strings of an automaton but some words: products.py calls these functions.
 *
 *     without_words ──► piece_write ──► piece_end
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "public.h"
#include "tables.h"

enum { EDGES = 8, CELLS = 64 }; /* limits.py */
enum { EXIT = 1, FIRST = 2 };   /* fragments.py */

/* As in products.py. */
typedef struct {
    const int32_t *table; /* (states, classes) of the automaton; state 0 is dead */
    const uint8_t *byte_class, *accepting;
    int64_t states, classes, start;
    const uint8_t *words; /* one after another */
    const int64_t *ends;  /* (count) of each */
    int64_t count, max_work;
} Given;

/* What `from_dfa` of fragments.py makes. */
typedef struct {
    int32_t *table, *start; /* (states, segments), (segments) */
    uint8_t *ends;          /* (states) */
    int64_t bounds[257], states, segments;
} Piece;

/* A prefix of a word that is a prefix of the automaton's strings; the first one is empty. */
typedef struct {
    int32_t parent, child, sibling; /* of those that are one byte longer the first one, and the next of them; or 0 */
    int32_t beside;                 /* the automaton's state after it */
    uint8_t byte, is_word;
} Prefix;

typedef struct {
    Prefix *prefixes;
    int64_t prefix_count, letter_count;
    int letter_of[256];                /* each byte of a word gets a class of its own; -1 for other bytes */
    int column_of[512], byte_of[256];  /* of each class, of each letter */
    int32_t class_of[512];             /* the automaton's class in each column */
    uint8_t byte_class[256];
    int64_t rows, columns;
    int32_t *table, *number;
    uint8_t *accepting, *is_productive;
} Words;

static void read_words(Words *w, const Given *given)
{
    w->prefixes[0] = (Prefix){.beside = (int32_t)given->start};
    w->prefix_count = 1;
    memset(w->letter_of, 0xff, sizeof w->letter_of);
    for (int64_t word = 0, at = 0; word < given->count; word++) {
        int32_t here = 0;
        for (; at < given->ends[word]; at++) {
            const uint8_t byte = given->words[at];
            int32_t there = w->prefixes[here].child;
            while (there && w->prefixes[there].byte != byte)
                there = w->prefixes[there].sibling;
            if (!there) {
                const int64_t row = given->classes * w->prefixes[here].beside;
                const int32_t state = given->table[row + given->byte_class[byte]];
                if (!state)
                    break;
                there = (int32_t)w->prefix_count++;
                w->prefixes[there] = (Prefix){here, 0, w->prefixes[here].child, state, byte, 0};
                w->prefixes[here].child = there;
                if (w->letter_of[byte] < 0) {
                    w->byte_of[w->letter_count] = byte;
                    w->letter_of[byte] = (int)w->letter_count++;
                }
            }
            here = there;
        }
        if (at == given->ends[word])
            w->prefixes[here].is_word = 1;
        at = given->ends[word];
    }
}

/* The columns of classes that some byte has. */
static void choose_columns(Words *w, const Given *given)
{
    uint8_t is_used[512] = {0};
    for (int byte = 0; byte < 256; byte++)
        is_used[w->letter_of[byte] < 0 ? given->byte_class[byte] : given->classes + w->letter_of[byte]] = 1;
    for (int64_t class = 0; class < given->classes + w->letter_count; class++) {
        if (!is_used[class])
            continue;
        w->class_of[w->columns] =
            (int32_t)(class < given->classes ? class : given->byte_class[w->byte_of[class - given->classes]]);
        w->column_of[class] = (int)w->columns++;
    }
    for (int byte = 0; byte < 256; byte++)
        w->byte_class[byte] = (uint8_t)w->column_of[w->letter_of[byte] < 0 ? given->byte_class[byte]
                                                                           : given->classes + w->letter_of[byte]];
}

/* The automaton's rows, then one for each prefix: as the state beside it, but to longer prefixes by their bytes. */
static void write_table(Words *w, const Given *given)
{
    for (int64_t row = 0; row < w->rows; row++) {
        const Prefix *prefix = row < given->states ? NULL : w->prefixes + row - given->states;
        const int64_t state = prefix ? prefix->beside : row;
        for (int64_t j = 0; j < w->columns; j++)
            w->table[w->columns * row + j] = given->table[given->classes * state + w->class_of[j]];
        w->accepting[row] = given->accepting[state] && !(prefix && prefix->is_word);
        if (prefix && row > given->states)
            w->table[w->columns * (given->states + prefix->parent) + w->byte_class[prefix->byte]] = (int32_t)row;
    }
}

/* Numbers the states that are reached from the empty prefix, and reach the end; the others get 0.
 *
 * counts  (2) written: how many are reached, the dead one too, and the moves from those
 *
 * Returns how many have a number, the dead one too.
 */
static int64_t number_rows(Words *w, int64_t start, int64_t *counts)
{
    int32_t *todo = w->number + w->rows; /* scratch beside the numbers */
    int64_t todo_count = 0, kept = 1;
    counts[0] = 1;
    counts[1] = 0;
    w->number[start] = 1;
    todo[todo_count++] = (int32_t)start;
    while (todo_count) {
        const int32_t *row = w->table + w->columns * todo[--todo_count];
        counts[0]++;
        for (int64_t j = 0; j < w->columns; j++) {
            counts[1] += row[j] != 0;
            if (!row[j] || w->number[row[j]])
                continue;
            w->number[row[j]] = 1;
            todo[todo_count++] = row[j];
        }
    }
    for (int64_t row = 0; row < w->rows; row++)
        w->number[row] = w->number[row] && w->is_productive[row] ? (int32_t)kept++ : 0;
    return kept;
}

/* Leaves the rows that have a number. */
static void keep_rows(Words *w)
{
    for (int64_t row = 1; row < w->rows; row++) {
        if (!w->number[row])
            continue;
        w->accepting[w->number[row]] = w->accepting[row];
        for (int64_t j = 0; j < w->columns; j++) /* no row moves down */
            w->table[w->columns * w->number[row] + j] = w->number[w->table[w->columns * row + j]];
    }
}

PUBLIC void hf_guided_piece_end(Piece *piece)
{
    free(piece->table);
    free(piece->start);
    free(piece->ends);
    free(piece);
}

/* The bytes of a segment have the same class; returns the column of each. */
static void find_segments(const Words *w, Piece *piece, int *column)
{
    for (int byte = 0; byte < 256; byte++)
        if (!byte || w->byte_class[byte] != w->byte_class[byte - 1]) {
            column[piece->segments] = w->byte_class[byte];
            piece->bounds[piece->segments++] = byte;
        }
    piece->bounds[piece->segments] = 256;
}

/* Numbers the states inside a piece. */
static void number_inside(Words *w, Piece *piece, int64_t kept, int64_t start)
{
    int leads_to_start = 0;
    for (int64_t row = 0; row < kept; row++) {
        int moves = 0;
        for (int64_t j = 0; j < w->columns; j++) {
            moves |= w->table[w->columns * row + j];
            leads_to_start |= w->table[w->columns * row + j] == start;
        }
        w->number[row] = moves ? FIRST : w->accepting[row] ? EXIT : 0;
    }
    if (!leads_to_start && w->number[start] == FIRST)
        w->number[start] = 0;
    piece->states = FIRST;
    for (int64_t row = 0; row < kept; row++)
        if (w->number[row] == FIRST)
            w->number[row] = (int32_t)piece->states++;
}

/* The piece of the rows that are left; NULL if there is no memory. */
static Piece *piece_of(Words *w, int64_t kept, int64_t start)
{
    int column[256];
    Piece *piece = calloc(1, sizeof *piece);
    if (!piece)
        return NULL;
    find_segments(w, piece, column);
    number_inside(w, piece, kept, start);
    piece->table = calloc((size_t)(piece->states * piece->segments), sizeof *piece->table);
    piece->start = malloc((size_t)piece->segments * sizeof *piece->start);
    piece->ends = calloc((size_t)piece->states, 1);
    if (!piece->table || !piece->start || !piece->ends) {
        hf_guided_piece_end(piece);
        return NULL;
    }
    for (int64_t row = 0; row < kept; row++) {
        if (w->number[row] < FIRST)
            continue;
        for (int64_t j = 0; j < piece->segments; j++)
            piece->table[piece->segments * w->number[row] + j] = w->number[w->table[w->columns * row + column[j]]];
        piece->ends[w->number[row]] = w->accepting[row];
    }
    for (int64_t j = 0; j < piece->segments; j++)
        piece->start[j] = w->number[w->table[w->columns * start + column[j]]];
    return piece;
}

static Piece *made(Words *w, const Given *given, int64_t *counts)
{
    int64_t reached[2], *work = counts + 3;
    const int64_t bytes = given->count ? given->ends[given->count - 1] : 0;
    if (!(w->prefixes = malloc(((size_t)bytes + 1) * sizeof *w->prefixes)))
        return NULL;
    read_words(w, given);
    choose_columns(w, given);
    w->rows = given->states + w->prefix_count;
    *work = given->count + bytes + 1 + 2 * w->rows * (given->classes + w->letter_count) / CELLS;
    if (*work > given->max_work)
        return NULL;
    w->table = malloc((size_t)(w->rows * w->columns) * sizeof *w->table);
    w->number = calloc(2 * (size_t)w->rows, sizeof *w->number);
    w->accepting = malloc((size_t)w->rows);
    w->is_productive = malloc((size_t)w->rows);
    if (!w->table || !w->number || !w->accepting || !w->is_productive)
        return NULL;
    write_table(w, given);
    if (hf_guided_productive(w->table, w->rows, w->columns, w->accepting, w->is_productive) < 0)
        return NULL;
    const int64_t kept = number_rows(w, given->states, reached);
    *work += reached[0] + reached[1] / EDGES;
    const int64_t start = w->number[given->states];
    counts[0] = 0;
    if (!start)
        return NULL;
    *work += 1 + kept * w->columns / CELLS;
    if (*work > given->max_work)
        return NULL;
    keep_rows(w);
    Piece *piece = piece_of(w, kept, start);
    counts[0] = piece ? piece->states : -1;
    counts[1] = piece ? piece->segments : 0;
    counts[2] = w->accepting[start];
    return piece;
}

/* What is left, as a piece.
 *
 * counts  (4) written: its states and segments, whether the empty string is in it, and the work
 *
 * Returns it; NULL with counts[0] = -1 where there is no memory, NULL where the work is more than it may be, and with
 * counts[0] = 0 where no string is left.
 */
PUBLIC Piece *hf_guided_without_words(const Given *given, int64_t *counts)
{
    Words w;
    memset(&w, 0, sizeof w);
    counts[0] = -1;
    Piece *piece = made(&w, given, counts);
    free(w.prefixes);
    free(w.table);
    free(w.number);
    free(w.accepting);
    free(w.is_productive);
    return piece;
}

/* Writes it into the arrays of a `Fragment` of fragments.py. */
PUBLIC void hf_guided_piece_write(const Piece *piece, int32_t *table, int64_t *bounds, int32_t *start, uint8_t *ends)
{
    memcpy(table, piece->table, (size_t)(piece->states * piece->segments) * sizeof *table);
    memcpy(bounds, piece->bounds, (size_t)(piece->segments + 1) * sizeof *bounds);
    memcpy(start, piece->start, (size_t)piece->segments * sizeof *start);
    memcpy(ends, piece->ends, (size_t)piece->states);
}
