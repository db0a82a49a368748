// report.html of a sweep: its points compared, in one file that needs no network.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trident {

// Of a sweep's document (run_sweep), and of the timelines in the folders of runs that it names. The
// page's script (report/page) draws figures and the table of points.
std::string sweep_report(const nlohmann::ordered_json& sweep);

}  // namespace trident
