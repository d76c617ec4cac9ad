/// Changes images of training samples at random: mirrored, or cut from a padded image.
///
/// What happens to an image depends on the seed and on how many samples were drawn before it, so it
/// is the same on any mesh and after a resume, and another one in the next epoch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

struct Augmentation {
  bool flip = false;              ///< half of the images are mirrored, left to right
  std::int64_t crop_padding = 0;  ///< pixels of zeros around an image, from which it is cut again

  bool changes() const { return flip || crop_padding > 0; }
};

/// `images`: [samples, channels, height, width]; `first`: samples drawn before the first one.
at::Tensor augmented(const at::Tensor& images, const Augmentation& augmentation, std::uint64_t seed,
                     std::int64_t first);

}  // namespace strata
