#include "strata/python/calls.h"

#include <nanobind/stl/string.h>

#include "strata/base/errors.h"

namespace strata {
namespace nb = nanobind;
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUser:
      return "UserError";
    case ErrorKind::kSystem:
      return "MachineError";
    case ErrorKind::kInternal:
      return "InternalError";
  }
  return "InternalError";
}

void raise(const Error& error) {
  const nb::object made =
      nb::module_::import_("strata.errors").attr(class_of(error.kind()))(error.what());
  const ErrorText& text = error.text();
  made.attr("operation") = text.operation;
  made.attr("where") = text.where;
  made.attr("what") = text.what;
  made.attr("expected") = text.expected;
  made.attr("got") = text.got;
  made.attr("fix") = text.fix;
  PyErr_SetObject(made.type().ptr(), made.ptr());
}

}  // namespace

void raise_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace strata
