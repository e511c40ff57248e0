#include <stdint.h>

/* A number whose bits all depend on all bits of `x`. */
static inline uint64_t mixed(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x7fb5d329728ea185);
    x ^= x >> 27;
    x *= UINT64_C(0x81dadef4bc2dd44d);
    return x ^ (x >> 33);
}
