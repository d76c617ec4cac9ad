/// Writes the bytes of HTTP answers, and checks the headers of requests.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "strata/http/routes.h"

namespace strata {

/// How an answer is sent.
struct HttpFraming {
  bool is_http11 = true;    ///< else 1.0, which has no chunks
  bool keep_alive = false;  ///< the connection stays open
  bool is_head = false;     ///< no body follows
};

/// Whether answers of the status have a body: not 1xx, 204 and 304.
bool has_body(int status);

/// The status line and headers, with the empty line. Control characters in values become spaces.
std::string header_text(const HttpAnswer& answer, HttpFraming framing);

/// A piece of a chunked body; `bytes` is not empty.
std::string chunk_text(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

/// The answer to a request whose headers contradict each other or ask for what the server does not
/// do: one of 400, 417 and 501.
std::optional<HttpAnswer> refuse_headers(const HttpRequest& request, bool is_http11);

}  // namespace strata
