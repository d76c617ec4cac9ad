#include "strata/base/error_source.h"

#include <utility>

namespace strata {
namespace {

ErrorText text_of(const ErrorSource& source, std::string where, std::string what,
                  std::string expected, std::string got, std::string fix) {
  if (fix.empty()) fix = source.fix;
  return {source.operation,    std::move(where), std::move(what),
          std::move(expected), std::move(got),   std::move(fix)};
}

}  // namespace

UserError ErrorSource::user(std::string where, std::string what, std::string expected,
                            std::string got, std::string own_fix) const {
  return UserError(text_of(*this, std::move(where), std::move(what), std::move(expected),
                           std::move(got), std::move(own_fix)));
}

SystemError ErrorSource::system(std::string where, std::string what, std::string expected,
                                std::string got, std::string own_fix) const {
  return SystemError(text_of(*this, std::move(where), std::move(what), std::move(expected),
                             std::move(got), std::move(own_fix)));
}

InternalError ErrorSource::internal(std::string where, std::string what, std::string expected,
                                    std::string got) const {
  return InternalError(
      text_of(*this, std::move(where), std::move(what), std::move(expected), std::move(got), ""));
}

}  // namespace strata
