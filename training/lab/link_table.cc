#include "training/lab/link_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <vector>

#include "core/error.h"

namespace trident {
namespace {

// The words of a line that are numbers, from the first on; words between them are left out.
std::vector<double> numbers_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<double> numbers;
  for (std::string word; stream >> word;) {
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    if (end == word.c_str() + word.size() && std::isfinite(value)) numbers.push_back(value);
  }
  return numbers;
}

bool has(const std::string& line, const char* word) {
  return line.find(word) != std::string::npos;
}

class Table {
 public:
  void read(const std::string& line) {
    if (line.starts_with('#')) return head(line);
    const std::vector<double> numbers = numbers_of(line);
    if (kind_ == Kind::osu_bandwidth && numbers.size() >= 2) {
      largest(numbers[1] * 1e6);
    } else if (kind_ == Kind::osu_latency && numbers.size() >= 2) {
      if (!latency_ && numbers[1] > 0) latency_ = numbers[1] * 1e-6;
    } else if (kind_ == Kind::nccl) {
      row(line, numbers);
    }
  }
  Machine::Link link(const std::string& name, Machine::Link known) const {
    if (!bandwidth_ && !latency_) {
      throw RequestError(
          fmt::format("{}: needs the output of nccl-tests (all_reduce_perf, sendrecv_perf and so "
                      "on), osu_bw or "
                      "osu_latency, with at least one row",
                      name));
    }
    known.bandwidth = bandwidth_.value_or(known.bandwidth);
    known.latency = latency_.value_or(known.latency);
    return known;
  }

 private:
  enum class Kind { none, nccl, osu_bandwidth, osu_latency };

  void head(const std::string& line) {
    if (has(line, "OSU MPI") && has(line, "Bandwidth")) kind_ = Kind::osu_bandwidth;
    if (has(line, "OSU MPI") && has(line, "Latency")) kind_ = Kind::osu_latency;
    if (has(line, "algbw") && has(line, "busbw")) kind_ = Kind::nccl;
    if (has(line, " Rank ") && has(line, " device ")) ++ranks_;
  }

  // size, count, type, redop, root, time (us), algbw, busbw (GB/s), …; type and redop are words,
  // root may be one.
  void row(const std::string& line, const std::vector<double>& numbers) {
    std::istringstream stream(line);
    double size = 0, count = 0;
    std::string type, redop, root;
    double time = 0, algorithm = 0, bus = 0;
    if (!(stream >> size >> count >> type >> redop >> root >> time >> algorithm >> bus)) return;
    if (numbers.size() < 5 || !(size > 0) || !(time > 0) || !(algorithm >= 0) || !(bus >= 0))
      return;
    if (bus > 0) largest(bus * 1e9);
    if (smallest_ && *smallest_ <= size) return;
    smallest_ = size;
    const double n = std::max(2, ranks_);
    const bool all_reduce = redop != "none";
    latency_ = time * 1e-6 / (all_reduce ? 2 * std::ceil(std::log2(n)) : n - 1);
  }

  void largest(double bandwidth) {
    if (bandwidth > 0 && bandwidth < 1e18) bandwidth_ = std::max(bandwidth_.value_or(0), bandwidth);
  }

  Kind kind_ = Kind::none;
  int ranks_ = 0;
  std::optional<double> bandwidth_, latency_, smallest_;
};

}  // namespace

Machine::Link read_link_table(std::string_view text, const std::string& name,
                              const Machine::Link& known) {
  Table table;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find_first_not_of(" \t");
    if (first != std::string::npos) table.read(line.substr(first));
  }
  return table.link(name, known);
}

}  // namespace trident
