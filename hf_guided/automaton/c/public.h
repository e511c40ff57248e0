#include <stdint.h>

/* Marks the functions that core.py calls. */
#ifdef _WIN32
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC __attribute__((visibility("default")))
#endif

/* Of the functions that core.py calls: another number whenever one of them, or what it is given, changes. */
enum { VERSION = 1 };
