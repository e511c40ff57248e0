#include <stdint.h>

/* Marks the functions that core.py calls. */
#ifdef _WIN32
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC __attribute__((visibility("default")))
#endif

/* Of the functions that core.py calls: another number whenever one of them, or what it is given, changes. */
enum { VERSION = 29 };

/* Whether to stop: called now and then by loops whose length is not known beforehand. */
typedef int32_t (*Look)(void);
enum { LOOK_AT = 1 << 22 }; /* entries that a loop handles between two looks: about ten milliseconds */
