/* Takes the calls out of an automaton: `take_calls` of rtn.py. */
#include <stdint.h>
#include <string.h>

#include "public.h"

enum { FIRST_CODE = 0xF5, NEVER = 0xC0 }; /* rtn.py */

/* The moves of an automaton; one of the two is NULL. */
typedef struct {
    uint16_t *narrow;
    uint32_t *wide;
    int64_t states, classes;
} Table;

static int64_t moved(const Table *table, int64_t state, int64_t class)
{
    const int64_t at = table->classes * state + class;
    return table->narrow ? table->narrow[at] : (int64_t)table->wide[at];
}

/* Removes the moves by a class. */
static void clear(const Table *table, int64_t class)
{
    for (int64_t at = class; at < table->classes * table->states; at += table->classes)
        if (table->narrow)
            table->narrow[at] = 0;
        else
            table->wide[at] = 0;
}

/* Writes the state after each call, and removes the moves by codes.
 *
 * narrow, wide  (states, classes) one of the two; written
 * byte_class    (256); written
 * codes         (callees, width) the bytes of each callee
 * after_calls   (callees, states) written; 0 where there is no call
 */
PUBLIC void hf_guided_take_calls(uint16_t *narrow, uint32_t *wide, int64_t states, int64_t classes,
                                 uint8_t *byte_class, const uint8_t *codes, int64_t callees, int64_t width,
                                 int32_t *after_calls)
{
    const Table table = {narrow, wide, states, classes};
    for (int64_t callee = 0; callee < callees; callee++)
        for (int64_t state = 0; state < states; state++) {
            int64_t after = state;
            for (int64_t i = 0; i < width && after; i++)
                after = moved(&table, after, byte_class[codes[width * callee + i]]);
            after_calls[states * callee + state] = (int32_t)after;
        }
    uint8_t is_of_text[256] = {0};
    for (int byte = 0; byte < FIRST_CODE; byte++)
        is_of_text[byte_class[byte]] = 1;
    for (int byte = FIRST_CODE; byte < 256; byte++) {
        if (!is_of_text[byte_class[byte]])
            clear(&table, byte_class[byte]);
        byte_class[byte] = byte_class[NEVER];
    }
}
