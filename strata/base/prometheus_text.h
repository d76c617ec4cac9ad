/// Writes parts of Prometheus' text format, version 0.0.4.
#pragma once

#include <string>

namespace strata {

/// The content type of an HTTP answer in this format.
inline constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

/// The value of a label between its quotes: backslashes, quotes and line ends are escaped.
std::string prometheus_label_value(const std::string& text);

/// The lines that begin a metric; `type`: "counter", "gauge" or "histogram".
std::string prometheus_head(const std::string& name, const std::string& type,
                            const std::string& help);

}  // namespace strata
