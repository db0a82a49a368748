// report.html of a sweep: it compares the sweep's points, in one file that needs no network.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trident {

// Draws a sweep's document (run_sweep), and the timelines in the folders of the runs that it names.
// The page's script (report/page) draws the figures and the table of points.
std::string sweep_report(const nlohmann::ordered_json& sweep);

}  // namespace trident
