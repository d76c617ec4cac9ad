// libjpeg reports errors by longjmp, so the function that calls it has no objects with destructors.
#include "strata/images/image_file.h"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstring>

#include "strata/base/error_source.h"
#include "strata/base/random_access_file.h"
#include "strata/device/device.h"

namespace strata {
namespace {

constexpr ErrorSource kImageErrors{"images.read", "write the image as PNG or JPEG"};
const FileUse kImageUse{.operation = "images.read", .fix = "name an image"};
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

std::string whole_file(const std::string& path) {
  const auto file = RandomAccessFile::open(path, kImageUse);
  if (file->size() > kMostBytes)
    throw kImageErrors.user(path, "the file is too large for an image", "at most 1 GiB",
                            std::to_string(file->size()) + " bytes");
  std::string bytes(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void require_size(const std::string& path, std::int64_t height, std::int64_t width) {
  if (height < 1 || width < 1 || height * width > kMostPixels)
    throw kImageErrors.user(path, "an image of this size is not read", "1 to 2^28 pixels",
                            std::to_string(width) + " x " + std::to_string(height));
}

UserError damaged(const std::string& path, const std::string& reason) {
  return kImageErrors.user(path, "the image is damaged", "a complete image", reason);
}

// [height, width, channels]
at::Tensor pixels_of(std::int64_t height, std::int64_t width, std::int64_t channels) {
  return at::empty({height, width, channels}, host_options(at::kByte));
}

at::Tensor read_png(const std::string& path, const std::string& bytes, std::int64_t channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()))
    throw damaged(path, image.message);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  at::Tensor pixels;
  try {
    require_size(path, image.height, image.width);
    pixels = pixels_of(image.height, image.width, channels);
  } catch (...) {
    png_image_free(&image);
    throw;
  }
  const png_color black{0, 0, 0};
  if (!png_image_finish_read(&image, &black, pixels.mutable_data_ptr(), 0, nullptr))
    throw damaged(path, image.message);
  return pixels;
}

struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf at_error;
  char message[JMSG_LENGTH_MAX];
  int warnings;  // damaged bytes, which libjpeg replaces by grey
};

void jump(j_common_ptr of) {
  auto* errors = reinterpret_cast<JpegErrors*>(of->err);
  (*of->err->format_message)(of, errors->message);
  std::longjmp(errors->at_error, 1);
}

void warn(j_common_ptr of, int level) {
  auto* errors = reinterpret_cast<JpegErrors*>(of->err);
  if (level >= 0) return;
  (*of->err->format_message)(of, errors->message);
  ++errors->warnings;
}

// Calls `make(height, width)` for the memory of the pixels. Returns false after an error.
template <typename Make>
bool decode_jpeg(const unsigned char* bytes, std::size_t size, std::int64_t channels, Make& make,
                 JpegErrors& errors) {
  jpeg_decompress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jump;
  errors.manager.emit_message = warn;
  errors.warnings = 0;
  if (setjmp(errors.at_error)) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, bytes, size);
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  unsigned char* row = make(jpeg.image_height, jpeg.image_width);
  if (!row) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_start_decompress(&jpeg);
  const std::size_t stride = static_cast<std::size_t>(jpeg.output_width) *
                             static_cast<std::size_t>(jpeg.output_components);
  while (jpeg.output_scanline < jpeg.output_height) {
    jpeg_read_scanlines(&jpeg, &row, 1);
    row += stride;
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return errors.warnings == 0;
}

at::Tensor read_jpeg(const std::string& path, const std::string& bytes, std::int64_t channels) {
  at::Tensor pixels;
  std::exception_ptr refusal;
  const auto make = [&](std::int64_t height, std::int64_t width) -> unsigned char* {
    try {
      require_size(path, height, width);
      pixels = pixels_of(height, width, channels);
      return pixels.data_ptr<unsigned char>();
    } catch (...) {
      refusal = std::current_exception();
      return nullptr;
    }
  };
  JpegErrors errors{};
  const bool decoded = decode_jpeg(reinterpret_cast<const unsigned char*>(bytes.data()),
                                   bytes.size(), channels, make, errors);
  if (refusal) std::rethrow_exception(refusal);
  if (!decoded) throw damaged(path, errors.message);
  return pixels;
}

}  // namespace

at::Tensor read_image(const std::string& path, std::int64_t channels) {
  const std::string bytes = whole_file(path);
  const bool is_png = bytes.starts_with("\x89PNG"), is_jpeg = bytes.starts_with("\xff\xd8\xff");
  if (!is_png && !is_jpeg)
    throw kImageErrors.user(path, "neither a PNG nor a JPEG file", "an image", "other bytes");
  const at::Tensor pixels =
      is_png ? read_png(path, bytes, channels) : read_jpeg(path, bytes, channels);
  return pixels.permute({2, 0, 1}).contiguous();
}

at::Tensor fitted_image(const at::Tensor& image, std::int64_t height, std::int64_t width) {
  const std::int64_t h = image.size(1), w = image.size(2);
  // First the part with the sides' ratio, so that no image becomes larger than it must.
  const auto share = [](std::int64_t side, std::int64_t of, std::int64_t whole) {
    const double ratio = static_cast<double>(of) / static_cast<double>(whole);
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(side) * ratio));
  };
  const bool is_tall = h * width > w * height;
  const std::int64_t kept_h = is_tall ? std::min(h, share(w, height, width)) : h;
  const std::int64_t kept_w = is_tall ? w : std::min(w, share(h, width, height));
  const at::Tensor part =
      image.narrow(1, (h - kept_h) / 2, kept_h).narrow(2, (w - kept_w) / 2, kept_w);
  if (kept_h == height && kept_w == width) return part.contiguous();
  return at::_upsample_bilinear2d_aa(part.unsqueeze(0).to(at::kFloat), {height, width},
                                     /*align_corners=*/false)[0]
      .round_()
      .clamp_(0, 255)
      .to(at::kByte);
}

}  // namespace strata
