#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "apply_bitmask_(Tensor(a!) logits, Tensor bitmask, Tensor? row_slots=None, Tensor(b!)? alive=None) -> ()");
  ops.def(
      "automaton_step_(Tensor(a!) logits, Tensor tokens, Tensor length, Tensor(b!) shadow, Tensor(c!) history, "
      "Tensor(d!) known, Tensor language_of, Tensor start, Tensor limit, Tensor think_until, Tensor languages, "
      "Tensor token_bytes, "
      "Tensor token_start, Tensor token_length, Tensor stops, Tensor(e!) claims, Tensor(f!) masks, "
      "Tensor(g!) state_of, Tensor(h!) slot_of, Tensor(i!) work, Tensor(j!) work_count, "
      "Tensor(k!)? alive=None) -> ()");
  ops.def(
      "build_masks_(Tensor work, Tensor work_count, Tensor languages, Tensor token_bytes, Tensor token_start, "
      "Tensor token_length, Tensor stops, Tensor(a!) masks) -> ()");
  ops.def(
      "masked_sample_(Tensor(a!) next_tokens, Tensor(b!) best, Tensor logits, Tensor bitmask, Tensor? row_slots, "
      "Tensor temperature, Tensor seed, Tensor position) -> ()");
#if defined(CUDA_KERNEL)
  ops.impl("apply_bitmask_", at::kCUDA, &apply_bitmask_);
  ops.impl("automaton_step_", at::kCUDA, &automaton_step_);
  ops.impl("build_masks_", at::kCUDA, &build_masks_);
  ops.impl("masked_sample_", at::kCUDA, &masked_sample_);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
