// Runs the kernels of guided_bitmask.cuh on the CPU, block by block in a shuffled order, for tests/kernel_harness.py.
//
// Commands come from stdin, answers go to stdout, both binary and little-endian:
//   B id size bytes         a buffer of exactly this size, so that the sanitizer sees what lies beside it
//   P id offset id offset   writes the address of a place in one buffer into another
//   L name grid_x grid_y seed count arguments   one launch; an argument is a number, a place in a buffer, or null
//   D id                    the bytes of a buffer

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

static long long gb_block_x, gb_block_y, gb_grid_x;
static unsigned gb_thread_step, gb_thread_first;

// The threads of a block in some order: an odd step goes through all of a power of two.
static int gb_thread_at(int i) { return (int)((gb_thread_first + (unsigned)i * gb_thread_step) % 256); }

#include "guided_bitmask.cuh"

static_assert(GB_THREADS == 256, "gb_thread_at");

// Parts of kernels, one result per block.
static void philox(const gb_u32 *in, gb_u32 *out) {
    const gb_u32 *const one = in + 6 * gb_block_x;
    const GbRandom found = gb_philox(one[0], one[1], one[2], one[3], one[4], one[5]);
    memcpy(out + 4 * gb_block_x, found.word, sizeof(found.word));
}
static void exponential(const gb_u32 *in, float *out) {
    out[gb_block_x] = gb_exponential(in[2 * gb_block_x], in[2 * gb_block_x + 1]);
}
static void value_of_f16(const gb_u16 *in, float *out) { out[gb_block_x] = GbF16::value(in[gb_block_x]); }

struct Buffer {
    unsigned char *bytes = nullptr;
    uint64_t size = 0;
};

static std::map<uint32_t, Buffer> buffers;

static void take(void *target, uint64_t size) {
    if (fread(target, 1, size, stdin) != size) {
        fprintf(stderr, "the input ends inside a command\n");
        exit(2);
    }
}

template <class T>
static T take() {
    T found;
    take(&found, sizeof(T));
    return found;
}

static unsigned char *place() {
    const Buffer &buffer = buffers.at(take<uint32_t>());
    return buffer.bytes + take<uint64_t>();
}

struct Argument {
    long long number;
    void *address;
};

template <class T>
static T as(const Argument &argument) {
    if constexpr (std::is_pointer_v<T>) {
        return static_cast<T>(argument.address);
    } else {
        return static_cast<T>(argument.number);
    }
}

template <class... Types, size_t... I>
static void call(void (*kernel)(Types...), const std::vector<Argument> &arguments, std::index_sequence<I...>) {
    kernel(as<Types>(arguments[I])...);
}

template <class... Types>
static void launch(void (*kernel)(Types...), const std::vector<Argument> &arguments, uint64_t grid_x, uint64_t grid_y,
                   uint64_t seed) {
    if (arguments.size() != sizeof...(Types)) {
        fprintf(stderr, "expected %zu arguments, got %zu\n", sizeof...(Types), arguments.size());
        exit(2);
    }
    std::mt19937_64 random(seed);
    std::vector<uint64_t> blocks(grid_x * grid_y);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    gb_grid_x = (long long)grid_x;
    for (uint64_t block : blocks) {
        gb_block_x = (long long)(block % grid_x);
        gb_block_y = (long long)(block / grid_x);
        gb_thread_step = (unsigned)random() | 1u;
        gb_thread_first = (unsigned)random();
        call(kernel, arguments, std::index_sequence_for<Types...>());
    }
}

static void launch_named() {
    std::string name(take<uint8_t>(), ' ');
    take(name.data(), name.size());
    const uint64_t grid_x = take<uint64_t>(), grid_y = take<uint64_t>(), seed = take<uint64_t>();
    std::vector<Argument> arguments(take<uint32_t>());
    for (Argument &argument : arguments) {
        argument = {0, nullptr};
        switch (take<char>()) {
            case 'i': argument.number = take<long long>(); break;
            case 'p': argument.address = place(); break;
            default: break;
        }
    }
#define KERNEL(one) \
    if (name == #one) return launch(one, arguments, grid_x, grid_y, seed);
    KERNEL(gb_apply_f32)
    KERNEL(gb_apply_f16)
    KERNEL(gb_apply_bf16)
    KERNEL(gb_advance)
    KERNEL(gb_build)
    KERNEL(gb_sample_f32)
    KERNEL(gb_sample_f16)
    KERNEL(gb_sample_bf16)
    KERNEL(gb_pick)
    KERNEL(philox)
    KERNEL(exponential)
    KERNEL(value_of_f16)
    fprintf(stderr, "no kernel %s\n", name.c_str());
    exit(2);
}

int main() {
    for (int command = getchar(); command != EOF; command = getchar()) {
        switch (command) {
            case 'B': {
                Buffer &buffer = buffers[take<uint32_t>()];
                free(buffer.bytes);
                buffer.size = take<uint64_t>();
                buffer.bytes = (unsigned char *)malloc(buffer.size);
                take(buffer.bytes, buffer.size);
                break;
            }
            case 'P': {
                unsigned char *const where = place();
                const unsigned char *const address = place();
                memcpy(where, &address, sizeof(address));
                break;
            }
            case 'L': launch_named(); break;
            case 'D': {
                const Buffer &buffer = buffers.at(take<uint32_t>());
                fwrite(buffer.bytes, 1, buffer.size, stdout);
                fflush(stdout);
                break;
            }
            default: return 2;
        }
    }
    for (auto &[id, buffer] : buffers) free(buffer.bytes);
    return 0;
}
