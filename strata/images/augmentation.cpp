#include "strata/images/augmentation.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>

#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr std::uint64_t kAugmentationKey = 0x61756731;  // separates these draws from others

}  // namespace

at::Tensor augmented(const at::Tensor& images, const Augmentation& augmentation, std::uint64_t seed,
                     std::int64_t first) {
  const std::int64_t pad = augmentation.crop_padding, places = 2 * pad + 1;
  const at::Tensor padded = pad > 0 ? at::constant_pad_nd(images, {pad, pad, pad, pad}) : images;
  at::Tensor changed = at::empty_like(images);
  const std::uint64_t key = mix_key(seed, kAugmentationKey);
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    const auto sample = static_cast<std::uint64_t>(first + i);
    const PhiloxBlock drawn =
        philox({static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32), 0, 0},
               {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    at::Tensor image = padded[i]
                           .narrow(1, drawn[0] % places, images.size(2))
                           .narrow(2, drawn[1] % places, images.size(3));
    if (augmentation.flip && drawn[2] % 2 == 1) image = image.flip({2});
    changed[i].copy_(image);
  }
  return changed;
}

}  // namespace strata
