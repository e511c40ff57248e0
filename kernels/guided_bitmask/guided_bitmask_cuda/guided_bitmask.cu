// The torch side of guided_bitmask.cuh: checks of the arguments, grids, launches on the current stream.

// c10/cuda and not ATen/cuda: that would want the headers of cuSPARSE and cuBLAS.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "guided_bitmask.cuh"

namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

void check(Tensor const &tensor, const char *name, at::ScalarType dtype, int64_t dimensions, Tensor const &scores) {
  TORCH_CHECK(tensor.device() == scores.device(), name, ": expected on ", scores.device(),
              ", where the scores are, got ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == dtype, name, ": expected ", dtype, ", got ", tensor.scalar_type());
  TORCH_CHECK(tensor.dim() == dimensions, name, ": expected ", dimensions, " dimensions, got ", tensor.sizes());
  TORCH_CHECK(tensor.is_contiguous(), name, ": expected contiguous, got strides ", tensor.strides());
}

template <class Format>
void launch(Tensor const &out, Tensor const &alive, Tensor const &scores, Tensor const &masks, Tensor const &slots,
            Maybe const &own, Maybe const &stops, Maybe const &log_sums) {
  using Bits = typename Format::Bits;
  const int64_t rows = scores.size(0), vocab = scores.size(1);
  const auto blocks = [](int64_t threads) {
    return static_cast<unsigned>(std::min<int64_t>(65535, threads / GB_THREADS + 1));
  };
  const auto stream = c10::cuda::getCurrentCUDAStream();
  Bits *const written = static_cast<Bits *>(out.data_ptr());
  const int *const shared = masks.const_data_ptr<int>();
  const unsigned columns = blocks(vocab / (Format::UNIT * GB_BATCH));
  Tensor sums;  // of each thread
  if (log_sums) sums = at::empty({rows, int64_t{columns} * GB_THREADS, 2}, log_sums->options());
  gb_mask<Format><<<dim3(rows, columns), GB_THREADS, 0, stream>>>(
      written, alive.data_ptr<int>(), static_cast<Bits const *>(scores.const_data_ptr()), scores.stride(0), vocab,
      shared, own ? own->const_data_ptr<int>() : shared, masks.size(1), slots.const_data_ptr<int>(),
      log_sums ? sums.data_ptr<float>() : nullptr);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (log_sums) log_sums->copy_(at::logsumexp(sums, 1));
  if (!stops) return;
  static_assert(sizeof(long long) == sizeof(int64_t));
  gb_end<Format><<<dim3(rows, blocks(vocab / 16)), GB_THREADS, 0, stream>>>(  // few rows ever need it
      written, vocab, alive.const_data_ptr<int>(), static_cast<long long const *>(stops->const_data_ptr()),
      stops->size(0));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

std::tuple<Tensor, Tensor> apply_masks(Tensor const &given, Tensor const &masks, Tensor const &slots, Maybe const &own,
                                       Maybe const &stops, Maybe const &log_sums) {
  TORCH_CHECK(given.is_cuda(), "scores: expected on a CUDA device, got ", given.device());
  TORCH_CHECK(given.dim() == 2, "scores: expected (rows, vocab), got ", given.sizes());
  TORCH_CHECK(given.size(1) <= int64_t{1} << 30, "scores: expected at most 2^30 columns, got ", given.size(1));
  check(masks, "masks", at::kInt, 2, given);
  check(slots, "slots", at::kInt, 1, given);
  TORCH_CHECK(slots.size(0) >= given.size(0), "slots: expected one for each of the ", given.size(0), " rows, got ",
              slots.size(0));
  if (own) {
    check(*own, "own", at::kInt, 2, given);
    TORCH_CHECK(own->size(1) == masks.size(1), "own: expected ", masks.size(1), " words, as in masks, got ",
                own->size(1));
  }
  if (stops) check(*stops, "stops", at::kLong, 1, given);
  if (log_sums) {
    check(*log_sums, "log_sums", at::kFloat, 2, given);
    TORCH_CHECK(log_sums->size(0) == given.size(0) && log_sums->size(1) == 2, "log_sums: expected (", given.size(0),
                ", 2), got ", log_sums->sizes());
  }
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor scores = given.size(1) < 2 || given.stride(1) == 1 ? given : given.contiguous();
  const Tensor out = at::empty(scores.sizes(), scores.options());
  const Tensor alive = at::zeros({scores.size(0)}, slots.options());
  if (!scores.size(0)) return {out, alive};
  switch (scores.scalar_type()) {
    case at::kFloat:
      launch<GbF32>(out, alive, scores, masks, slots, own, stops, log_sums);
      break;
    case at::kHalf:
      launch<GbF16>(out, alive, scores, masks, slots, own, stops, log_sums);
      break;
    case at::kBFloat16:
      launch<GbBf16>(out, alive, scores, masks, slots, own, stops, log_sums);
      break;
    default:
      TORCH_CHECK(false, "scores: expected float32, float16 or bfloat16, got ", scores.scalar_type());
  }
  return {out, alive};
}
