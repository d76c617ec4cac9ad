#include "strata/http/routes.h"

#include <algorithm>
#include <optional>

#include "strata/base/errors.h"
#include "strata/http/http_target.h"

namespace strata {
namespace {

std::string_view first_value(const HttpFields& fields, std::string_view name) {
  for (const auto& [field, value] : fields)
    if (field == name) return value;
  return {};
}

std::string joined(const std::vector<std::string>& segments, std::size_t first) {
  std::string all = segments[first];
  for (std::size_t i = first + 1; i < segments.size(); ++i) all += '/' + segments[i];
  return all;
}

// The parameters, if the pattern of a route matches the segments of a path.
std::optional<HttpFields> matched(const std::vector<std::string>& pattern,
                                  const std::vector<std::string>& segments) {
  HttpFields parameters;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (i >= segments.size()) return std::nullopt;
    const std::string& expected = pattern[i];
    if (!expected.starts_with('{')) {
      if (expected != segments[i]) return std::nullopt;
      continue;
    }
    const bool takes_rest = expected.ends_with("...}");
    std::string value = takes_rest ? joined(segments, i) : segments[i];
    if (!is_plain_name(value)) return std::nullopt;
    parameters.emplace_back(expected.substr(1, expected.size() - (takes_rest ? 5 : 2)),
                            std::move(value));
    if (takes_rest) return parameters;
  }
  if (pattern.size() != segments.size()) return std::nullopt;
  return parameters;
}

bool answers(const HttpRoute& route, const std::string& method) {
  return route.method == method || (method == "HEAD" && route.method == "GET");
}

// The value of Allow for the methods of a path's routes.
std::string allowed(const std::vector<std::string>& methods) {
  std::string list;
  for (const std::string& method : methods) {
    list += method + ", ";
    if (method == "GET") list += "HEAD, ";
  }
  return list + "OPTIONS";
}

HttpAnswer answer_to(const std::exception& exception) {
  const Error error = to_error(exception);
  return {.status = error.kind() == ErrorKind::kUser ? 400 : 500,
          .body = std::string(error.what()) + '\n'};
}

}  // namespace

bool equal_in_any_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [field, value] : headers)
    if (equal_in_any_case(field, name)) return value;
  return {};
}

std::string_view HttpRequest::parameter(std::string_view name) const {
  return first_value(parameters, name);
}

std::string_view HttpRequest::query_value(std::string_view name) const {
  return first_value(query_values, name);
}

HttpMatch match_route(const HttpRoutes& routes, const std::string& method,
                      const std::string& path) {
  if (method == "OPTIONS" && path == "*") return {.answer = {.status = 204, .type = ""}};
  const std::optional<std::vector<std::string>> segments = path_segments(path);
  if (!segments) return {.answer = {.status = 400, .body = "the path is malformed\n"}};
  std::vector<std::string> methods;
  for (const HttpRoute& route : routes) {
    std::optional<HttpFields> parameters = matched(*path_segments(route.path), *segments);
    if (!parameters) continue;
    if (answers(route, method)) return {.route = &route, .parameters = std::move(*parameters)};
    if (std::find(methods.begin(), methods.end(), route.method) == methods.end())
      methods.push_back(route.method);
  }
  if (methods.empty()) return {.answer = {.status = 404, .body = "there is no such path\n"}};
  const std::string allow = allowed(methods);
  const HttpFields headers = {{"Allow", allow}};
  if (method == "OPTIONS") return {.answer = {.status = 204, .type = "", .headers = headers}};
  return {
      .answer = {.status = 405, .body = "the path answers " + allow + '\n', .headers = headers}};
}

void run_route(const HttpRoute& route, HttpRequest request,
               const std::shared_ptr<HttpResponder>& responder) {
  try {
    if (route.asynchronous)
      route.asynchronous(std::move(request), responder);
    else
      responder->answer(route.handler(request));
  } catch (const std::exception& error) {
    responder->answer(answer_to(error));
  }
}

}  // namespace strata
