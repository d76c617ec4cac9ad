/// Decodes PNG and JPEG, and brings images to one size.
///
/// Units   values 0 to 255.
/// Errors  UserError `[images.read]`: another format, damaged bytes, more than 2^28 pixels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace strata {

/// The image of a file, bytes [channels, height, width]; 1 channel: grey, 3: red, green, blue. A
/// transparent image is laid on black.
at::Tensor read_image(const std::string& path, std::int64_t channels);

/// Cuts the middle of the image with that ratio of its sides, and scales it by averages of the
/// pixels that a new one covers: bytes [channels, height, width].
at::Tensor fitted_image(const at::Tensor& image, std::int64_t height, std::int64_t width);

}  // namespace strata
