/// Writes GGUF files for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

namespace strata {

class ExampleGguf {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;

  template <typename T>
  ExampleGguf& number(const std::string& key, std::uint32_t type, T value) {
    return add(key, type, bytes_of(value));
  }
  ExampleGguf& integer(const std::string& key, std::uint32_t value) {
    return number(key, 4, value);
  }
  ExampleGguf& real(const std::string& key, float value) { return number(key, 6, value); }
  ExampleGguf& flag(const std::string& key, bool value) { return number(key, 7, value); }
  ExampleGguf& text(const std::string& key, const std::string& value) {
    return add(key, 8, string(value));
  }
  ExampleGguf& texts(const std::string& key, const std::vector<std::string>& values) {
    std::string list;
    for (const std::string& value : values) list += string(value);
    return add(key, 9, bytes_of(std::uint32_t{8}) + bytes_of(std::uint64_t{values.size()}) + list);
  }
  template <typename T>  // type 5: std::int32_t, 6: float
  ExampleGguf& numbers(const std::string& key, std::uint32_t type, const std::vector<T>& values) {
    std::string list;
    for (const T value : values) list += bytes_of(value);
    return add(key, 9, bytes_of(type) + bytes_of(std::uint64_t{values.size()}) + list);
  }

  /// `shape`: row-major; `bytes`: of all elements, blocks of `type`.
  ExampleGguf& tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                      std::uint32_t type, const std::string& bytes) {
    tensors_ += string(name) + bytes_of(static_cast<std::uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) tensors_ += bytes_of(*size);
    tensors_ += bytes_of(type) + bytes_of(std::uint64_t{data_.size()});
    data_ += bytes;
    pad(data_);
    ++num_tensors_;
    return *this;
  }
  ExampleGguf& floats(const std::string& name, const std::vector<std::int64_t>& shape,
                      const std::vector<float>& values) {
    return tensor(name, shape, 0,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  std::string bytes() const {
    std::string file = "GGUF" + bytes_of(version) + bytes_of(num_tensors_) + bytes_of(num_keys_) +
                       keys_ + tensors_;
    pad(file);
    return file + data_;
  }
  void write(const std::string& path) const { std::ofstream(path, std::ios::binary) << bytes(); }

  template <typename T>
  static std::string bytes_of(T value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  }
  static std::string string(const std::string& text) {
    return bytes_of(std::uint64_t{text.size()}) + text;
  }

 private:
  ExampleGguf& add(const std::string& key, std::uint32_t type, const std::string& value) {
    keys_ += string(key) + bytes_of(type) + value;
    ++num_keys_;
    return *this;
  }
  void pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  }

  std::string keys_, tensors_, data_;
  std::uint64_t num_keys_ = 0, num_tensors_ = 0;
};

/// Adds a byte-level tokenizer of the tokens a, b, c, Ġ, ab, Ġa and <|end|>.
inline ExampleGguf& add_example_tokenizer(ExampleGguf& file, const std::string& pre = "gpt-2") {
  return file.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", {"a", "b", "c", "Ġ", "ab", "Ġa", "<|end|>"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 1, 1, 1, 3})
      .texts("tokenizer.ggml.merges", {"a b", "Ġ a"})
      .integer("tokenizer.ggml.eos_token_id", 6)
      .text("tokenizer.chat_template", "{{ messages[0].content }}");
}

/// Adds the sizes of a llama of one block, width 8, two heads and one key head, MLP 16, vocabulary
/// 7.
inline ExampleGguf& add_example_llama(ExampleGguf& file, const std::string& name = "llama") {
  return file.text("general.architecture", name)
      .integer(name + ".block_count", 1)
      .integer(name + ".context_length", 32)
      .integer(name + ".embedding_length", 8)
      .integer(name + ".feed_forward_length", 16)
      .integer(name + ".attention.head_count", 2)
      .integer(name + ".attention.head_count_kv", 1)
      .real(name + ".attention.layer_norm_rms_epsilon", 1e-5f);
}

}  // namespace strata
