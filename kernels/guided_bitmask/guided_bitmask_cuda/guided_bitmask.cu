// The torch side of guided_bitmask.cuh: checks of the arguments, grids, launches on the current stream.

// c10/cuda and not ATen/cuda: that would want the headers of cuSPARSE and cuBLAS.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "guided_bitmask.cuh"

namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

constexpr int64_t kUnitsPerThread = 4;  // 16-byte units of a row that one thread looks at
constexpr int64_t kBuildBlocksPerProcessor = 8;  // all that a multiprocessor holds: 2,048 threads

// A contiguous tensor of the given shape (-1: any) on the device of another.
void check(Tensor const &tensor, const char *name, at::ScalarType dtype, std::initializer_list<int64_t> shape,
           Tensor const &beside) {
  TORCH_CHECK(tensor.device() == beside.device(), name, ": expected on ", beside.device(), ", got ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == dtype, name, ": expected ", dtype, ", got ", tensor.scalar_type());
  TORCH_CHECK(tensor.dim() == static_cast<int64_t>(shape.size()), name, ": expected ", shape.size(),
              " dimensions, got ", tensor.dim());
  int64_t dimension = 0;
  for (int64_t size : shape) {
    TORCH_CHECK(size < 0 || tensor.size(dimension) == size, name, ": expected ", size, " in dimension ", dimension,
                ", got ", tensor.size(dimension));
    ++dimension;
  }
  TORCH_CHECK(tensor.is_contiguous(), name, ": expected contiguous, got strides ", tensor.strides());
}

void check_logits(Tensor const &logits) {
  TORCH_CHECK(logits.is_cuda(), "logits: expected on a CUDA device, got ", logits.device());
  TORCH_CHECK(logits.dim() == 2, "logits: expected (rows, vocab), got ", logits.sizes());
  TORCH_CHECK(logits.size(1) < 2 || logits.stride(1) == 1, "logits: expected stride 1 in the last dimension, got ",
              logits.stride(1));
  TORCH_CHECK(logits.size(1) < int64_t{1} << 31, "logits: expected fewer than 2^31 columns, got ", logits.size(1));
  TORCH_CHECK(logits.size(0) < 65536, "logits: expected at most 65535 rows, got ", logits.size(0));
}

void check_bitmask(Tensor const &bitmask, Tensor const &logits) {
  TORCH_CHECK(bitmask.device() == logits.device(), "bitmask: expected on ", logits.device(), ", got ",
              bitmask.device());
  TORCH_CHECK(bitmask.scalar_type() == at::kInt, "bitmask: expected int32, got ", bitmask.scalar_type());
  TORCH_CHECK(bitmask.dim() == 2, "bitmask: expected (rows, words), got ", bitmask.sizes());
  TORCH_CHECK(bitmask.size(1) < 2 || bitmask.stride(1) == 1,
              "bitmask: expected stride 1 in the last dimension, got ", bitmask.stride(1));
}

template <class T>
T *pointer(Tensor const &tensor) {
  return reinterpret_cast<T *>(tensor.data_ptr());
}

gb_i32 *pointer_or_null(Maybe const &tensor) { return tensor ? pointer<gb_i32>(*tensor) : nullptr; }

void check_rows(Maybe const &tensor, const char *name, Tensor const &logits) {
  if (tensor) check(*tensor, name, at::kInt, {logits.size(0)}, logits);
}

template <class Bits, class Kernel>
void launch_apply(Kernel kernel, Tensor const &logits, Tensor const &masks, gb_i32 *row_slots, gb_i32 *alive,
                  gb_i32 *work_count) {
  const int64_t units = 2 + logits.size(1) * static_cast<int64_t>(sizeof(Bits)) / 16;
  const int64_t per_block = GB_THREADS * kUnitsPerThread;
  const dim3 grid((units + per_block - 1) / per_block, logits.size(0));
  kernel<<<grid, GB_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      pointer<Bits>(logits), logits.stride(0), logits.size(1), pointer<gb_i32>(masks), masks.stride(0), masks.size(1),
      row_slots, alive, work_count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void apply_any(Tensor const &logits, Tensor const &masks, gb_i32 *row_slots, gb_i32 *alive, gb_i32 *work_count) {
  switch (logits.scalar_type()) {
    case at::kFloat:
      return launch_apply<gb_u32>(gb_apply_f32, logits, masks, row_slots, alive, work_count);
    case at::kHalf:
      return launch_apply<gb_u16>(gb_apply_f16, logits, masks, row_slots, alive, work_count);
    case at::kBFloat16:
      return launch_apply<gb_u16>(gb_apply_bf16, logits, masks, row_slots, alive, work_count);
    default:
      TORCH_CHECK(false, "logits: expected float32, float16 or bfloat16, got ", logits.scalar_type());
  }
}

template <class Bits, class Kernel>
void launch_sample(Kernel kernel, Tensor const &logits, Tensor const &bitmask, Maybe const &row_slots,
                   Tensor const &temperature, Tensor const &seed, Tensor const &position, Tensor &best) {
  const dim3 grid(best.size(1), logits.size(0));
  kernel<<<grid, GB_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      pointer<Bits>(logits), logits.stride(0), logits.size(1), pointer<gb_i32>(bitmask), bitmask.stride(0),
      bitmask.size(1), pointer_or_null(row_slots), pointer<float>(temperature), pointer<gb_i64>(seed),
      pointer<gb_i32>(position), pointer<gb_u64>(best));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void check_build(Tensor const &work, Tensor const &work_count, Tensor const &languages, Tensor const &token_bytes,
                 Tensor const &token_start, Tensor const &token_length, Tensor const &stops, Tensor const &masks) {
  TORCH_CHECK(masks.is_cuda(), "masks: expected on a CUDA device, got ", masks.device());
  check_bitmask(masks, masks);
  check(work, "work", at::kInt, {-1, static_cast<int64_t>(sizeof(GbWork) / 4)}, masks);
  check(work_count, "work_count", at::kInt, {1}, masks);
  check(languages, "languages", at::kLong, {-1, static_cast<int64_t>(sizeof(GbLanguage) / 8)}, masks);
  check(token_bytes, "token_bytes", at::kLong, {-1}, masks);
  check(token_start, "token_start", at::kInt, {-1}, masks);
  check(token_length, "token_length", at::kInt, {token_start.size(0)}, masks);
  check(stops, "stops", at::kInt, {-1}, masks);
}

void launch_build(Tensor const &work, Tensor const &work_count, Tensor const &languages, Tensor const &token_bytes,
                  Tensor const &token_start, Tensor const &token_length, Tensor const &stops, Tensor const &masks) {
  const int64_t chunks = (masks.size(1) + GB_SHARED_WORDS - 1) / GB_SHARED_WORDS;
  int processors = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, masks.device().index()));
  const int64_t blocks = std::min(chunks * work.size(0), kBuildBlocksPerProcessor * processors);
  if (!blocks) return;
  gb_build<<<dim3(blocks), GB_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      pointer<GbWork>(work), pointer<gb_i32>(work_count), pointer<GbLanguage>(languages), pointer<gb_u64>(token_bytes),
      pointer<gb_i32>(token_start), pointer<gb_i32>(token_length), token_start.size(0), pointer<gb_i32>(stops),
      stops.size(0), pointer<gb_i32>(masks), masks.stride(0), masks.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void build_masks_(Tensor const &work, Tensor const &work_count, Tensor const &languages, Tensor const &token_bytes,
                  Tensor const &token_start, Tensor const &token_length, Tensor const &stops, Tensor &masks) {
  check_build(work, work_count, languages, token_bytes, token_start, token_length, stops, masks);
  const c10::cuda::CUDAGuard guard(masks.device());
  launch_build(work, work_count, languages, token_bytes, token_start, token_length, stops, masks);
}

void apply_bitmask_(Tensor &logits, Tensor const &bitmask, Maybe const &row_slots, Maybe const &alive) {
  check_logits(logits);
  check_bitmask(bitmask, logits);
  check_rows(row_slots, "row_slots", logits);
  check_rows(alive, "alive", logits);
  TORCH_CHECK(row_slots || bitmask.size(0) >= logits.size(0), "bitmask: expected ", logits.size(0),
              " rows, one for each row of the logits, got ", bitmask.size(0), "; pass row_slots");
  if (!logits.numel()) return;
  const c10::cuda::CUDAGuard guard(logits.device());
  apply_any(logits, bitmask, pointer_or_null(row_slots), pointer_or_null(alive), nullptr);
}

void automaton_step_(Tensor &logits, Tensor const &tokens, Tensor const &length, Tensor &shadow, Tensor &history,
                     Tensor &known, Tensor const &language_of, Tensor const &start, Tensor const &limit,
                     Tensor const &think_until, Tensor const &languages, Tensor const &token_bytes, Tensor const &token_start,
                     Tensor const &token_length, Tensor const &stops, Tensor &claims, Tensor &masks, Tensor &state_of,
                     Tensor &slot_of, Tensor &work, Tensor &work_count, Maybe const &alive) {
  check_logits(logits);
  check_bitmask(masks, logits);
  const int64_t rows = logits.size(0), capacity = shadow.size(-1), count = token_start.size(0);
  TORCH_CHECK(tokens.device() == logits.device() && tokens.scalar_type() == at::kLong && tokens.dim() == 2 &&
                  tokens.size(0) == rows && tokens.size(1) >= capacity && (capacity < 2 || tokens.stride(1) == 1),
              "tokens: expected int64 (", rows, ", at least ", capacity, ") on ", logits.device(),
              " with stride 1, got ", tokens.scalar_type(), " ", tokens.sizes(), " on ", tokens.device(),
              " with strides ", tokens.strides());
  for (auto const &[tensor, name] :
       {std::pair{&length, "length"}, {&known, "known"}, {&language_of, "language_of"}, {&start, "start"},
        {&limit, "limit"}, {&think_until, "think_until"}, {&state_of, "state_of"}, {&slot_of, "slot_of"}}) {
    check(*tensor, name, at::kInt, {rows}, logits);
  }
  check(shadow, "shadow", at::kInt, {rows, capacity}, logits);
  check(history, "history", at::kInt, {rows, capacity}, logits);
  check_build(work, work_count, languages, token_bytes, token_start, token_length, stops, masks);
  check(claims, "claims", at::kInt, {-1}, logits);
  TORCH_CHECK(work.size(0) == rows, "work: expected ", rows, " rows, got ", work.size(0));
  check_rows(alive, "alive", logits);
  TORCH_CHECK(masks.size(0) >= claims.size(0) + rows, "masks: expected ", claims.size(0), " slots of the pool and ",
              rows, " scratch slots, got ", masks.size(0));
  if (!rows) return;
  const c10::cuda::CUDAGuard guard(logits.device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  gb_advance<<<dim3(1, rows), GB_THREADS, 0, stream>>>(
      pointer<gb_i64>(tokens), tokens.stride(0), pointer<gb_i32>(length), capacity, pointer<gb_i32>(shadow),
      pointer<gb_i32>(history), pointer<gb_i32>(known), pointer<gb_i32>(language_of), pointer<gb_i32>(start),
      pointer<gb_i32>(limit), pointer<gb_i32>(think_until), pointer<GbLanguage>(languages), pointer<gb_u64>(token_bytes),
      pointer<gb_i32>(token_start), pointer<gb_i32>(token_length), count, pointer<gb_i32>(stops), stops.size(0),
      pointer<gb_i32>(claims), claims.size(0), pointer<gb_i32>(state_of), pointer<gb_i32>(slot_of),
      pointer<GbWork>(work), pointer<gb_i32>(work_count));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  launch_build(work, work_count, languages, token_bytes, token_start, token_length, stops, masks);
  apply_any(logits, masks, pointer<gb_i32>(slot_of), pointer_or_null(alive), pointer<gb_i32>(work_count));
}

void masked_sample_(Tensor &next_tokens, Tensor &best, Tensor const &logits, Tensor const &bitmask,
                    Maybe const &row_slots, Tensor const &temperature, Tensor const &seed, Tensor const &position) {
  check_logits(logits);
  check_bitmask(bitmask, logits);
  const int64_t rows = logits.size(0);
  check_rows(row_slots, "row_slots", logits);
  check(next_tokens, "next_tokens", at::kLong, {rows}, logits);
  check(best, "best", at::kLong, {rows, -1}, logits);
  check(temperature, "temperature", at::kFloat, {rows}, logits);
  check(seed, "seed", at::kLong, {rows}, logits);
  check(position, "position", at::kInt, {rows}, logits);
  TORCH_CHECK(best.size(1) > 0, "best: expected at least one part per row, got none");
  TORCH_CHECK(row_slots || bitmask.size(0) >= rows, "bitmask: expected ", rows,
              " rows, one for each row of the logits, got ", bitmask.size(0), "; pass row_slots");
  if (!rows) return;
  const c10::cuda::CUDAGuard guard(logits.device());
  switch (logits.scalar_type()) {
    case at::kFloat:
      launch_sample<gb_u32>(gb_sample_f32, logits, bitmask, row_slots, temperature, seed, position, best);
      break;
    case at::kHalf:
      launch_sample<gb_u16>(gb_sample_f16, logits, bitmask, row_slots, temperature, seed, position, best);
      break;
    case at::kBFloat16:
      launch_sample<gb_u16>(gb_sample_bf16, logits, bitmask, row_slots, temperature, seed, position, best);
      break;
    default:
      TORCH_CHECK(false, "logits: expected float32, float16 or bfloat16, got ", logits.scalar_type());
  }
  gb_pick<<<dim3(1, rows), GB_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      pointer<gb_i64>(next_tokens), pointer<gb_u64>(best), best.size(1), nullptr, 0, nullptr, 0, nullptr, nullptr, nullptr,
      0, nullptr, 0);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
