#include "strata/report/report.h"

#include <fstream>

#include "strata/base/errors.h"
#include "strata/report/html.h"
#include "strata/report/report_parts.h"

namespace strata {
namespace {

using report::escape;

std::string header(const ReportInput& input) {
  std::string facts;
  for (const auto& [name, value] : input.facts) {
    facts += "<div><dt>" + escape(name) + "</dt><dd>" + escape(value) + "</dd></div>";
  }
  return "<header><p class=\"brand\">" + std::string(R"(<svg width="22" height="22" )") +
         R"(viewBox="0 0 22 22" aria-hidden="true"><path d="M11 2 21 7 11 12 1 7z"/>)" +
         R"(<path d="m1 11 10 5 10-5" class="second"/><path d="m1 15 10 5 10-5" class="third"/>)" +
         "</svg>Strata</p><h1>" + escape(input.title) + "</h1>" +
         (facts.empty() ? "" : "<dl>" + facts + "</dl>") + "</header>\n";
}

std::string sample(const ReportInput& input) {
  if (input.sample.empty()) return "";
  return "<section class=\"card\" id=\"sample\"><div class=\"head\"><div><h2>What it writes</h2>"
         "<p>The prompt in bold, the rest by the model.</p></div></div><blockquote><b>" +
         escape(input.prompt) + "</b>" + escape(input.sample) + "</blockquote></section>\n";
}

std::string appendices(const ReportInput& input) {
  std::string all;
  for (const auto& [title, text] : input.appendices) {
    all += "<details class=\"card\"><summary>" + escape(title) + "</summary><pre>" + escape(text) +
           "</pre></details>\n";
  }
  return all;
}

}  // namespace

std::string to_html(const ReportInput& input) {
  const std::string text = sample(input);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         escape(input.title) + " \u00b7 Strata</title>\n<style>" + report::style_sheet() +
         "</style>\n</head>\n<body>\n<main>\n" + header(input) + report::tiles(input) +
         report::timeline(input) + report::idle(input) + "<div class=\"" +
         (text.empty() ? "" : "columns") + "\">" + report::loss_curve(input) + text + "</div>\n" +
         report::memory(input) + report::comparison(input) + appendices(input) +
         "</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>" + report::script() +
         "</script>\n</body>\n</html>\n";
}

void write_report(const std::string& path, const ReportInput& input) {
  std::ofstream out(path, std::ios::binary);
  out << to_html(input) << std::flush;
  if (out) return;
  throw SystemError({.operation = "train.report",
                     .where = path,
                     .what = "cannot write the report",
                     .expected = "",
                     .got = "",
                     .fix = "name a file in an existing folder with room on its disk"});
}

}  // namespace strata
