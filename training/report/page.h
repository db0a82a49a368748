// The style and script of report.html: training/report/page/report.css and report.js.
#pragma once

#include <string_view>

namespace trident {

extern const std::string_view report_style, report_script;

}  // namespace trident
