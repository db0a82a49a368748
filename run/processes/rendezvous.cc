#include "run/processes/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "base/process/process.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

constexpr std::size_t differences_shown = 10;

// Messages of request errors (exit code 2) begin with their place.
std::string shown(std::int64_t code, const std::string& text) {
  return (code == 2 ? "" : "trident: ") + text;
}

// Serialises texts and numbers; a text follows its length.
class Writer {
 public:
  void add(std::int64_t number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    bytes += text;
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  bool ended() const { return at_ >= bytes_.size(); }
  std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number());
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

Rendezvous::Report read(const std::string& bytes) {
  Reader from(bytes);
  Rendezvous::Report report;
  report.code = from.number();
  report.text = from.text();
  report.mode = from.text();
  report.value = from.number();
  report.given = from.text();
  while (!from.ended()) {
    Fingerprint one;
    for (std::string* part : {&one.name, &one.value, &one.advice}) *part = from.text();
    report.fingerprints.push_back(std::move(one));
  }
  return report;
}

// Rank 0's conclusion from all reports: an exit code, the text to show, and the least value.
struct Answer {
  std::int64_t code = 0;
  std::string text;
  std::int64_t least = 0;
};

class Comparison {
  using Report = Rendezvous::Report;

 public:
  Comparison(const MpiJob& job, const std::vector<std::string>& all) : job_(job) {
    for (const std::string& one : all) reports_.push_back(read(one));
  }

  // The texts that the processes have given to an exchange, by rank.
  std::vector<std::string> given() const {
    std::vector<std::string> all;
    for (const Report& report : reports_) all.push_back(report.given);
    return all;
  }

  Answer answer() const {
    if (const auto failed = failure()) return *failed;
    if (const auto rank = first_other([](const Report& r) { return r.mode; })) {
      return {2, fmt::format("trident: {} runs {}, {} runs {}; start the same command on all ranks",
                             place(0), reports_[0].mode, place(*rank), reports_[*rank].mode)};
    }
    if (const std::string text = differences(); !text.empty()) return {2, text};
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Report& report : reports_) least = std::min(least, report.value);
    return {.least = least};
  }

 private:
  std::string place(std::size_t rank) const {
    return rank_text(static_cast<int>(rank), job_.host(static_cast<int>(rank)));
  }

  // The error of the lowest rank that has failed. It names no rank if all ranks have the same
  // error.
  std::optional<Answer> failure() const {
    const auto failed =
        std::find_if(reports_.begin(), reports_.end(), [](const Report& r) { return r.code != 0; });
    if (failed == reports_.end()) return std::nullopt;
    const bool all = !first_other([](const Report& r) { return r.text; });
    const std::string where = place(static_cast<std::size_t>(failed - reports_.begin()));
    return Answer{failed->code,
                  shown(failed->code, all ? failed->text : where + ": " + failed->text)};
  }

  // The first rank whose `of` differs from rank 0's.
  template <class Of>
  std::optional<std::size_t> first_other(Of of) const {
    for (std::size_t r = 1; r < reports_.size(); ++r) {
      if (of(reports_[r]) != of(reports_[0])) return r;
    }
    return std::nullopt;
  }

  std::string differences() const {
    std::vector<std::string> found;
    std::vector<Fingerprint> all;  // the names that any rank has
    for (const Report& report : reports_) {
      for (const Fingerprint& one : report.fingerprints) {
        const bool known = std::any_of(all.begin(), all.end(),
                                       [&](const Fingerprint& f) { return f.name == one.name; });
        if (!known) all.push_back(one);
      }
    }
    for (const Fingerprint& one : all) {
      const auto value = [&](const Report& report) {
        for (const Fingerprint& f : report.fingerprints) {
          if (f.name == one.name) return f.value;
        }
        return std::string("none");
      };
      const auto rank = first_other(value);
      if (!rank) continue;
      found.push_back(fmt::format("{}: {} has {}, {} has {}{}", one.name, place(0),
                                  value(reports_[0]), place(*rank), value(reports_[*rank]),
                                  one.advice.empty() ? "" : "; " + one.advice));
    }
    std::string text;
    for (std::size_t i = 0; i < std::min(found.size(), differences_shown); ++i) {
      text += (i == 0 ? "" : "\n") + found[i];
    }
    if (found.size() > differences_shown) {
      text += fmt::format("\n... and {} more differences", found.size() - differences_shown);
    }
    return text;
  }

  const MpiJob& job_;
  std::vector<Report> reports_;
};

}  // namespace

std::string Rendezvous::Report::bytes() const {
  Writer to;
  to.add(code);
  to.add(text);
  to.add(mode);
  to.add(value);
  to.add(given);
  for (const Fingerprint& one : fingerprints) {
    for (const std::string* part : {&one.name, &one.value, &one.advice}) to.add(*part);
  }
  return std::move(to.bytes);
}

void Rendezvous::join(const std::string& mode) {
  if (!alone_) {
    try {
      job_ = make_mpi_job();
    } catch (const RequestError& error) {
      throw error.at(rank_text(rank_, host_name()) + ": ");
    }
  }
  mode_ = mode;
}

Rendezvous::Reply Rendezvous::meet(const Report& own, const GiveAnswer& give,
                                   std::chrono::milliseconds longer, const std::string& why) {
  job_->begin(rank_, ranks_, limit_);
  const std::string bytes = job_->agree(
      own.bytes(),
      [&](const std::vector<std::string>& all) {
        const Comparison comparison(*job_, all);
        Answer answer = comparison.answer();
        std::string given;
        try {
          if (answer.code == 0 && give) given = give(comparison.given());
        } catch (...) {
          answer.code = exit_code_of(std::current_exception());
          answer.text = shown(answer.code, message_of(std::current_exception()));
        }
        if (answer.code != 0) print_error(answer.text);
        Writer to;
        to.add(answer.code);
        to.add(answer.least);
        to.add(given);
        return std::move(to.bytes);
      },
      why, limit_ + longer);
  Reader answer(bytes);
  const std::int64_t refused = answer.number();
  if (refused != 0) throw RendezvousRefused(static_cast<int>(refused));
  Reply reply;
  reply.least = answer.number();
  reply.given = answer.text();
  return reply;
}

std::int64_t Rendezvous::agree(const std::vector<Fingerprint>& fingerprints, std::int64_t value) {
  if (!takes_part()) return value;
  return meet({.mode = mode_, .value = value, .fingerprints = fingerprints}, {}, {}).least;
}

std::string Rendezvous::exchange(const std::string& own, const GiveAnswer& answer,
                                 std::chrono::milliseconds longer) {
  if (!takes_part()) return answer({own});
  return meet({.mode = mode_, .given = own}, answer, longer).given;
}

std::vector<std::string> Rendezvous::hosts() const {
  std::vector<std::string> names;
  for (int r = 0; r < job_->size(); ++r) names.push_back(job_->host(r));
  return names;
}

int Rendezvous::fail(int code, const std::string& text) noexcept {
  if (!takes_part()) {
    print_error(shown(code, text));
    return code;
  }
  if (started_) job_->abort(shown(3, rank_text(rank_, host_name()) + ": " + text), code);
  try {
    // If a process does not arrive, the line that reports this contains the error.
    meet({.code = code, .text = text, .mode = mode_}, {}, {}, "to report an error: " + text);
  } catch (const RendezvousRefused& refused) {
    return refused.code;
  } catch (const std::exception& error) {
    print_error(shown(code, text) + "\n" + error.what());
  }
  return code;
}

void Rendezvous::finish(int code) {
  if (takes_part()) job_->finish(code);
}

}  // namespace trident
