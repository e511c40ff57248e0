#include <stdint.h>

/* A minimal automaton; its states keep the order of the first ones of their kind. */
typedef struct Minimal Minimal;

/* The minimal automaton of a table.
 *
 * table       (states, classes) where each class of bytes leads; state 0 is dead
 * accepting   (states)
 * byte_class  (256) the class of each byte
 * start       where it begins
 * counts      (3) written: how many states and columns are left, and the start
 *
 * Returns it, for the two functions that Python calls; NULL with counts[0] = -1 if there is no memory, or -2 if `look`
 * stopped it.
 */
Minimal *minimal_of(const int32_t *table, int64_t states, int64_t classes, const uint8_t *accepting,
                    const uint8_t *byte_class, int64_t start, Look look, int64_t *counts);

/* Which states of a table reach the end: `hf_guided_productive` of product.c. */
int64_t hf_guided_productive(const int32_t *table, int64_t states, int64_t classes, const uint8_t *accepting,
                             uint8_t *productive);
