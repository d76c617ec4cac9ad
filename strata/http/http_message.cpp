#include "strata/http/http_message.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace strata {
namespace {

struct Reason {
  int status;
  const char* text;
};

constexpr auto kReasons = std::to_array<Reason>({
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Payload Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Entity"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
});

std::string reason_of(int status) {
  const auto* const known = std::find_if(kReasons.begin(), kReasons.end(),
                                         [&](const Reason& one) { return one.status == status; });
  return known == kReasons.end() ? "" : known->text;
}

void append(std::string& text, std::string_view name, std::string_view value) {
  text.append(name).append(": ");
  for (const char byte : value)
    text += static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f ? ' ' : byte;
  text += "\r\n";
}

// Whether a stream's pieces are sent as chunks; else the connection's end is the body's end.
bool is_chunked(const HttpAnswer& answer, HttpFraming framing) {
  return answer.stream && framing.is_http11;
}

}  // namespace

bool has_body(int status) { return status >= 200 && status != 204 && status != 304; }

std::string header_text(const HttpAnswer& answer, HttpFraming framing) {
  std::string text =
      "HTTP/1.1 " + std::to_string(answer.status) + ' ' + reason_of(answer.status) + "\r\n";
  if (!answer.type.empty()) append(text, "Content-Type", answer.type);
  append(text, "Cache-Control", "no-store");
  for (const auto& [name, value] : answer.headers) append(text, name, value);
  if (is_chunked(answer, framing))
    append(text, "Transfer-Encoding", "chunked");
  else if (!answer.stream && has_body(answer.status))
    append(text, "Content-Length", std::to_string(answer.body.size()));
  if (!framing.keep_alive)
    append(text, "Connection", "close");
  else if (!framing.is_http11)
    append(text, "Connection", "keep-alive");
  return text + "\r\n";
}

std::string chunk_text(std::string_view bytes) {
  char size[20];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return size + std::string(bytes) + "\r\n";
}

std::optional<HttpAnswer> refuse_headers(const HttpRequest& request, bool is_http11) {
  const auto refuse = [](int status, const char* why) {
    return HttpAnswer{.status = status, .body = std::string(why) + '\n'};
  };
  int hosts = 0, encodings = 0, lengths = 0;
  for (const auto& [name, value] : request.headers) {
    const auto is = [&](std::string_view field) { return equal_in_any_case(name, field); };
    hosts += is("host");
    lengths += is("content-length");
    if (is("transfer-encoding")) {
      ++encodings;
      if (!equal_in_any_case(value, "chunked"))
        return refuse(501, "the only transfer encoding is chunked");
    }
    if (is("expect") && !equal_in_any_case(value, "100-continue"))
      return refuse(417, "the only expectation is 100-continue");
  }
  if (hosts > 1) return refuse(400, "the request names several hosts");
  if (encodings > 1 || lengths > 1 || (encodings > 0 && (lengths > 0 || !is_http11)))
    return refuse(400, "the request states the length of its body in several ways");
  return std::nullopt;
}

}  // namespace strata
