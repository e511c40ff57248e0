#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "apply_masks(Tensor scores, Tensor masks, Tensor slots, Tensor? own=None, Tensor? stops=None, "
      "Tensor(a!)? log_sums=None) -> (Tensor, Tensor)");
#if defined(CUDA_KERNEL)
  ops.impl("apply_masks", at::kCUDA, &apply_masks);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
