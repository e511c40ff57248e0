// A CUDA driver of one device that loads and launches nothing, for tests/stand_in_driver.py.
//
// It answers every call with success, and keeps what was launched last: the kernel's name, the grid, the stream, and as
// many 64-bit words of the parameters as the test says that there are.

#include <stdint.h>
#include <string.h>

struct Config {  // the beginning of CUlaunchConfig
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream;
};

long long stand_in_count;  // launches so far
int stand_in_parameters;   // how many the next kernel has
char stand_in_kernel[64];
unsigned stand_in_grid[2], stand_in_block;
uint64_t stand_in_stream, stand_in_words[32];

static int a_context;

static int nothing(void) { return 0; }
static int version(int *out) { return *out = 13000, 0; }
static int one(int *out) { return *out = 1, 0; }
static int device(int *out, int ordinal) { return *out = ordinal, 0; }
static int attribute(int *out, int which, int ordinal) {
    (void)ordinal;
    return *out = which == 75 ? 9 : which == 76 ? 0 : 1, 0;  // the two numbers of the compute capability
}
static int context(void **out) { return *out = &a_context, 0; }
static int context_of_device(void **out, int ordinal) { return (void)ordinal, context(out); }
static int library(void **out) { return context(out); }
static int kernel(void **out, void *where, const char *name) { return (void)where, *out = strdup(name), 0; }
static int error_text(int code, const char **out) { return (void)code, *out = "a stand-in", 0; }
static int launch(const struct Config *config, void *function, void **parameters, void **extra) {
    (void)extra;
    ++stand_in_count;
    strncpy(stand_in_kernel, function, sizeof(stand_in_kernel) - 1);
    stand_in_grid[0] = config->grid_x;
    stand_in_grid[1] = config->grid_y;
    stand_in_block = config->block_x;
    stand_in_stream = (uint64_t)config->stream;
    for (int i = 0; i < stand_in_parameters; ++i) memcpy(&stand_in_words[i], parameters[i], 8);
    return 0;
}

static const struct {
    const char *name;
    void *function;
} functions[] = {
    {"cuDriverGetVersion", (void *)version},
    {"cuDeviceGetCount", (void *)one},
    {"cuDeviceGet", (void *)device},
    {"cuDeviceGetAttribute", (void *)attribute},
    {"cuDevicePrimaryCtxRetain", (void *)context_of_device},
    {"cuCtxGetCurrent", (void *)context},
    {"cuCtxGetDevice", (void *)nothing},
    {"cuLibraryLoadData", (void *)library},
    {"cuLibraryGetKernel", (void *)kernel},
    {"cuGetErrorName", (void *)error_text},
    {"cuGetErrorString", (void *)error_text},
    {"cuLaunchKernelEx", (void *)launch},
};

int cuGetProcAddress_v2(const char *name, void **out, int wanted, uint64_t flags, int *status) {
    (void)wanted, (void)flags;
    *out = (void *)nothing;
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); ++i) {
        if (!strcmp(functions[i].name, name)) *out = functions[i].function;
    }
    if (status) *status = 0;
    return 0;
}

int cuGetProcAddress(const char *name, void **out, int wanted, uint64_t flags) {
    return cuGetProcAddress_v2(name, out, wanted, flags, NULL);
}
