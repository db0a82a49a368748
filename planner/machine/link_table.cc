#include "planner/machine/link_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace trident {
namespace {

// Returns the words of a line that are numbers, in order, and skips all other words.
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

// Whether this is a plausible time of a message.
bool is_time(double microseconds) {
  return microseconds > 1e-6 && microseconds < 1e12;
}

class Table {
 public:
  void read(const std::string& line) {
    if (line.starts_with('#')) return head(line);
    const std::vector<double> numbers = numbers_of(line);
    if (kind_ == Kind::osu_bandwidth && numbers.size() >= 2) {
      largest(numbers[1] * 1e6), kind_of_bandwidth_ = kind_;
    } else if (kind_ == Kind::osu_latency && numbers.size() >= 2) {
      if (!latency_ && is_time(numbers[1])) latency_ = numbers[1] * 1e-6;
    } else if (kind_ == Kind::nccl) {
      row(line, numbers);
    }
  }
  LinkTable link(const std::string& name, Machine::Link known) const {
    if (!bandwidth_ && !latency_ && !smallest_) {
      throw RequestError(
          fmt::format("{}: needs the output of nccl-tests (all_reduce_perf, sendrecv_perf and so "
                      "on), osu_bw or osu_latency, with at least one row",
                      name));
    }
    known.bandwidth = bandwidth_.value_or(known.bandwidth);
    known.latency = smallest_ ? smallest_->seconds / steps() : latency_.value_or(known.latency);
    return {known, bandwidth_ && (kind_of_bandwidth_ == Kind::osu_bandwidth || exchanges())};
  }

 private:
  enum class Kind { none, nccl, osu_bandwidth, osu_latency };

  void head(const std::string& line) {
    // "OSU MPI-CUDA Bandwidth Test": one pair, one direction. Other OSU tests measure other things.
    if (const std::size_t osu = line.find("OSU MPI"); osu != std::string::npos) {
      const std::string test = line.substr(std::min(line.find(' ', osu + 4), line.size() - 1) + 1);
      kind_ = test.starts_with("Bandwidth Test") ? Kind::osu_bandwidth
              : test.starts_with("Latency Test") ? Kind::osu_latency
                                                 : Kind::none;
    }
    if (has(line, "algbw") && has(line, "busbw")) kind_ = Kind::nccl;
    if (has(line, " Rank ") && has(line, " device ")) ++ranks_;
    if (has(line, "sendrecv") || has(line, "alltoall")) named_exchange_ = true;
    // A part of its traffic stays inside nodes, so its rate isn't that of a link.
    if (has(line, "alltoall")) has_bus_rate_ = false;
  }

  // Columns: size, count, type, redop, root, time (us), algbw, busbw (GB/s), …; type and redop are
  // words, and root may be one.
  void row(const std::string& line, const std::vector<double>& numbers) {
    std::istringstream stream(line);
    double size = 0, count = 0;
    std::string type, redop, root;
    double time = 0, algorithm = 0, bus = 0;
    if (!(stream >> size >> count >> type >> redop >> root >> time >> algorithm >> bus)) return;
    if (numbers.size() < 5 || !(size > 0) || !is_time(time) || !(algorithm >= 0) || !(bus >= 0)) {
      return;
    }
    if (bus > 0 && has_bus_rate_) largest(bus * 1e9), kind_of_bandwidth_ = Kind::nccl;
    if (algorithm > 0 && (!largest_ || size > largest_->size)) {
      largest_ = Row{size, time * 1e-6, bus / algorithm, redop, root};
    }
    if (!smallest_ || size < smallest_->size) smallest_ = Row{size, time * 1e-6, 0, redop, root};
  }

  // Whether each rank sends the message that the test times (sendrecv, alltoall). Older versions of
  // nccl-tests don't name the test. Of the tests with an operation and no root, sendrecv alone has
  // a bus rate equal to the algorithm's rate, except with two ranks.
  bool exchanges() const {
    if (named_exchange_) return true;
    return largest_ && ranks_ > 2 && largest_->operation != "none" && largest_->root == "-1" &&
           std::abs(largest_->factor - 1) < 5e-4;
  }

  // The number of consecutive messages in the collective of the smallest size.
  double steps() const {
    if (exchanges()) return 1;
    const double n = std::max(2, ranks_);
    const bool twice = !largest_ || largest_->factor > 1 - (n > 2 ? 0 : 5e-4);
    const bool all_reduce = smallest_->operation != "none" && smallest_->root == "-1" && twice;
    return all_reduce ? 2 * std::ceil(std::log2(n)) : n - 1;
  }

  void largest(double bandwidth) {
    if (bandwidth > 0 && bandwidth < 1e18) bandwidth_ = std::max(bandwidth_.value_or(0), bandwidth);
  }

  struct Row {
    double size = 0, seconds = 0;
    double factor = 0;  // the bus rate divided by the algorithm's rate
    std::string operation, root;
  };
  Kind kind_ = Kind::none, kind_of_bandwidth_ = Kind::none;
  int ranks_ = 0;
  bool named_exchange_ = false, has_bus_rate_ = true;
  std::optional<double> bandwidth_, latency_;
  std::optional<Row> smallest_, largest_;
};

}  // namespace

LinkTable read_link_table(std::string_view text, const std::string& name,
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
