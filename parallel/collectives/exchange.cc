#include "parallel/collectives/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/content_hash.h"
#include "core/clock.h"
#include "kernels/backend.h"
#include "parallel/collectives/collective.h"

namespace trident {
namespace {

// The times for which a waiting member keeps its core: for members that have yet to come to an
// operation, and for members that have come and are about to reach its next rendezvous. Sleeping
// costs less than spinning for a late peer, but more than spinning for one that is nearly there.
constexpr std::chrono::microseconds look_time{300}, look_time_within{900};

}  // namespace

std::span<const Collective> Membership::more_collectives() const {
  const auto& more = endpoint->options().more_collectives;
  return more == nullptr ? std::span<const Collective>() : std::span<const Collective>(*more);
}

Exchange::Exchange(Membership& group, const Descriptor& descriptor, int channel, bool looks,
                   const Reach& reach)
    : group_(group),
      descriptor_(descriptor),
      channel_(channel),
      look_(looks ? look_time : look_time.zero()),
      reach_(reach) {
  if (reach_.backend == nullptr) reach_.backend = &cpu_backend();
  group_.endpoint->check();
}

Exchange::Transfer Exchange::send(int peer, const void* data, std::size_t bytes,
                                  std::shared_ptr<QueueSide> side) {
  if (channel_ < control_channel) count_sent(bytes);
  return {group_.endpoint->post_send(world_rank(peer), channel_, descriptor_, data, bytes,
                                     std::move(side)),
          peer, false};
}

Exchange::Transfer Exchange::forward(int peer, const void* data, std::size_t bytes) {
  return {group_.endpoint->post_send(world_rank(peer), channel_, descriptor_, data, bytes), peer,
          false};
}

Exchange::Transfer Exchange::receive(int peer, void* data, std::size_t bytes,
                                     std::shared_ptr<QueueSide> side) {
  return {group_.endpoint->post_receive(world_rank(peer), channel_, descriptor_, data, bytes,
                                        std::move(side)),
          peer, true};
}

Exchange::Transfer Exchange::receive_view(int peer, void* staging, std::size_t bytes) {
  return {
      group_.endpoint->post_receive_view(world_rank(peer), channel_, descriptor_, staging, bytes),
      peer, true};
}

void Exchange::wait(std::span<Transfer> transfers) {
  if (!announced_.empty()) {
    std::vector<Transfer> announced = std::move(announced_);
    announced_.clear();
    wait(announced);
  }
  Countdown limit = countdown();
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Outcome outcome = transfers[i].request->wait(limit);
    if (outcome != Outcome::complete) report(outcome, transfers, i);
  }
}

Countdown Exchange::countdown() const {
  return group_.without_timeout ? Countdown() : group_.endpoint->countdown(grace_);
}

void Exchange::announce() {
  const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
  announced_.push_back(receive(previous, nullptr, 0));
  announced_.push_back(send(next, nullptr, 0));
}

std::unique_ptr<Membership> Exchange::open_inside(int begin, int end) const {
  auto inside = std::make_unique<Membership>();
  inside->endpoint = group_.endpoint;
  inside->name = group_.name + " on one host";
  inside->id = content_hash(fmt::format("{} {}", group_.id, begin));
  inside->members.assign(group_.members.begin() + begin, group_.members.begin() + end);
  inside->rank = rank() - begin;
  inside->without_timeout = group_.without_timeout;
  inside->rendezvous = group_.endpoint->open_rendezvous(inside->id, inside->members);
  return inside;
}

void Exchange::open_reductions() {
  group_.endpoint->open_reductions(group_.id, group_.members);
  group_.reductions_opened = true;
}

Exchange::Transfer Exchange::reduce_by_transport(void* data, std::int64_t n) {
  const int previous = (rank() + size() - 1) % size();
  return {group_.endpoint->post_all_reduce(group_.id, world_rank(previous), data, n,
                                           descriptor_.dtype, descriptor_.reduce_op),
          previous, true};
}

void Exchange::arrive(const void* input, void* output) {
  const void* shown = input;
  if (!on_host()) {
    group_.ready->record(reach_.access);
    shown = new (rendezvous()->slot())
        ShownBuffers{static_cast<const std::byte*>(input), static_cast<std::byte*>(output),
                     &group_.ready, &group_.done};
  }
  const SharedRendezvous::Result result = rendezvous()->arrive(
      descriptor_, shown, output, met_ ? look_time_within : look_, countdown());
  met_ = true;
  if (result.outcome == Outcome::complete) {
    for (int i = 0; !on_host() && i < size(); ++i) {
      if (i == rank()) continue;
      (*shown_by(i).ready)->wait(reach_.access);
      others_done_.push_back(*shown_by(i).done);
    }
    return;
  }
  if (result.outcome == Outcome::mismatch) {
    report_mismatch(world_rank(result.members.front()),
                    rendezvous()->descriptor(result.members.front()));
  }
  const std::string text = fmt::format("{}: operation #{}", place(), descriptor_.sequence);
  std::vector<int> ranks;
  for (const int member : result.members) ranks.push_back(world_rank(member));
  if (result.outcome == Outcome::peer_ended) report_ended(text, ranks.front());
  report_late(text, std::move(ranks));
}

void Exchange::leave() {
  if (!on_host()) group_.done->record(reach_.access);
  rendezvous()->leave(look_);
  for (const auto& done : others_done_) done->wait(reach_.access);
}

const std::byte* Exchange::input(int member) const {
  return on_host() ? group_.rendezvous->input(member) : shown_by(member).input;
}
std::byte* Exchange::output(int member) const {
  return on_host() ? group_.rendezvous->output(member) : shown_by(member).output;
}

void Exchange::fetch(int member, std::byte* to, const std::byte* from, std::size_t bytes) {
  try {
    rendezvous()->fetch(member, to, from, bytes);
  } catch (const CommunicationError& error) {
    fail(fmt::format("{}: operation #{}: {}: rank {} copies from rank {}: {}", place(),
                     descriptor_.sequence, text_of(descriptor_), world_rank(rank()),
                     world_rank(member), error.what()));
  }
}

void Exchange::copy(void* to, const void* from, std::size_t bytes) const {
  reach_.backend->copy_peer(reach_.access, to, from, bytes);
}
void Exchange::reduce(std::span<const void* const> sources, std::span<void* const> places,
                      std::int64_t count) const {
  reach_.backend->reduce_peers(reach_.access, {.sources = sources,
                                               .places = places,
                                               .count = count,
                                               .dtype = descriptor_.dtype,
                                               .op = descriptor_.reduce_op,
                                               .divisor = size()});
}

// Ends all ranks before this one unwinds: a rank that waits elsewhere may be using its buffers.
void Exchange::fail(const std::string& text) {
  const auto error = std::make_exception_ptr(CommunicationError(text));
  group_.endpoint->fail(error);
  if (rendezvous() != nullptr) rendezvous()->abandon();
  std::rethrow_exception(error);
}

std::string Exchange::text_of(const Descriptor& descriptor) const {
  return to_string(descriptor, group_.members, group_.more_collectives());
}

std::string Exchange::place() const {
  return fmt::format("group '{}' (ranks {})", group_.name, rank_list(group_.members));
}

void Exchange::report_mismatch(int peer, const Descriptor& theirs) {
  std::string called = text_of(theirs);
  if (theirs.sequence != descriptor_.sequence) called += fmt::format(" as #{}", theirs.sequence);
  std::pair<int, std::string> calls[] = {{world_rank(rank()), text_of(descriptor_)},
                                         {peer, called}};
  std::sort(std::begin(calls), std::end(calls));
  fail(fmt::format("{}: operation #{}: rank {} called {}, rank {} called {}", place(),
                   descriptor_.sequence, calls[0].first, calls[0].second, calls[1].first,
                   calls[1].second));
}

void Exchange::report_ended(const std::string& text, int peer) {
  fail(fmt::format("{}: {}: rank {} waits for rank {}, which has ended", text, text_of(descriptor_),
                   world_rank(rank()), peer));
}

void Exchange::report_late(const std::string& text, std::vector<int> late) {
  std::sort(late.begin(), late.end());
  late.erase(std::unique(late.begin(), late.end()), late.end());
  Endpoint& endpoint = *group_.endpoint;
  std::string waits;
  for (std::size_t i = 0; i < std::min<std::size_t>(late.size(), 3); ++i) {
    waits += endpoint.waits_of(late[i]);
  }
  fail(fmt::format("{}: {}: rank {} waited {} ms for rank{} {}{}", text, text_of(descriptor_),
                   world_rank(rank()), endpoint.options().timeout.count(),
                   late.size() > 1 ? "s" : "", rank_list(late), waits));
}

void Exchange::report(Outcome outcome, std::span<Transfer> transfers, std::size_t failed) {
  const Transfer& transfer = transfers[failed];
  const int self = world_rank(rank()), peer = world_rank(transfer.peer);
  const bool message = descriptor_.operation == Operation::message;
  std::string text = fmt::format("{}: operation #{}", place(), descriptor_.sequence);
  const bool answer = channel_ >= first_answer_channel;
  if (message) {
    const bool self_sends = transfer.receives == answer;
    text = fmt::format("{}: message #{} from rank {} to rank {} on channel {}", place(),
                       descriptor_.sequence, self_sends ? self : peer, self_sends ? peer : self,
                       channel_ - (answer ? first_answer_channel : first_message_channel));
  }
  if (outcome == Outcome::mismatch) {
    const Descriptor& theirs = transfer.request->peer_descriptor();
    if (!message) report_mismatch(peer, theirs);
    const Descriptor &sent = answer ? descriptor_ : theirs,
                     &expected = answer ? theirs : descriptor_;
    const std::string other =
        theirs.sequence == descriptor_.sequence ? "" : fmt::format(" as #{}", sent.sequence);
    fail(fmt::format("{}: rank {} sent {}{}, rank {} expects {}", text, answer ? self : peer,
                     text_of(sent), other, answer ? peer : self, text_of(expected)));
  }
  if (outcome == Outcome::peer_ended) report_ended(text, peer);
  std::vector<int> late;  // all peers that have not come, not only the first
  for (std::size_t i = failed; i < transfers.size(); ++i) {
    if (i == failed || !transfers[i].request->test()) late.push_back(world_rank(transfers[i].peer));
  }
  report_late(text, std::move(late));
}

LoggedSpan::LoggedSpan(const Exchange& exchange, int peer, Purpose purpose)
    : exchange_(exchange),
      peer_(peer),
      purpose_(purpose),
      on_(exchange.group_.log && exchange.group_.log->on()) {
  if (!on_) return;
  begin_ns_ = read_clock().wall_ns;
  sent_ = exchange.sent_;
}

LoggedSpan::~LoggedSpan() {
  if (!on_) return;
  const Membership& group = exchange_.group_;
  group.log->add({.begin_ns = begin_ns_,
                  .end_ns = read_clock().wall_ns,
                  .bytes = exchange_.sent_ - sent_,
                  .peer = peer_ < 0 ? -1 : group.members[static_cast<std::size_t>(peer_)],
                  .group = group.log_number,
                  .operation = static_cast<std::uint8_t>(exchange_.descriptor_.operation),
                  .purpose = purpose_});
}

Segment segment_of(std::int64_t count, int parts, int i) {
  return {count * i / parts, count * (i + 1) / parts};
}

}  // namespace trident
