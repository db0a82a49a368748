// Tests the shared-memory rendezvous of a host. Threads play its processes.
#include "parallel/transport/host_rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "core/clock.h"

namespace trident {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Descriptor descriptor(std::uint64_t sequence) {
  Descriptor d;
  d.sequence = sequence;
  return d;
}

struct Seats {
  explicit Seats(std::vector<int> members) {
    std::shared_ptr<HostMemory> memory = HostMemory::make();
    for (const int rank : members) {
      auto seen = HostMemory::open(memory->ticket());
      seats.push_back(make_host_rendezvous(
          std::move(seen), 7, members, rank,
          {.ended = [this](int r) { return r == ended; }, .waits = &waits, .spins = false}));
    }
  }
  WaitTable waits;
  std::atomic<int> ended{-1};
  std::vector<std::unique_ptr<SharedRendezvous>> seats;
};

TEST(HostMemory, ARegionIsTheSameForAllThatNameIt) {
  const std::shared_ptr<HostMemory> one = HostMemory::make();
  const std::shared_ptr<HostMemory> other = HostMemory::open(one->ticket());
  ASSERT_NE(other, nullptr);
  bool full = false;
  const auto a = HostMemory::region(one, 5, 10000, full), b = HostMemory::region(one, 6, 10, full),
             c = HostMemory::region(other, 5, 10000, full);
  std::memset(a->data(), 1, 10000);
  EXPECT_EQ(c->data()[9999], std::byte{1});
  EXPECT_EQ(b->data()[0], std::byte{0});
  c->discard();
  EXPECT_EQ(a->data()[9999], std::byte{0});
}

TEST(HostMemory, AFullOneIsReportedToAllMembers) {
  const std::shared_ptr<HostMemory> one = HostMemory::make(),
                                    other = HostMemory::open(one->ticket());
  for (const auto& memory : {one, other}) {
    bool full = false;
    EXPECT_EQ(HostMemory::region(memory, 5, std::size_t{1} << 40, full), nullptr);
    EXPECT_TRUE(full);
  }
}

TEST(HostMemory, AnotherFileIsNotTakenForIt) {
  const std::shared_ptr<HostMemory> one = HostMemory::make();
  HostMemory::Ticket ticket = one->ticket();
  ticket.file += 1;
  EXPECT_EQ(HostMemory::open(ticket), nullptr);
  ticket.descriptor = 1 << 20;
  EXPECT_EQ(HostMemory::open(ticket), nullptr);
}

TEST(HostRendezvous, MembersReadTheSlotsOfTheOthers) {
  Seats world({3, 5});
  std::vector<std::jthread> threads;
  for (int self = 0; self < 2; ++self) {
    threads.emplace_back([&, self] {
      SharedRendezvous& seat = *world.seats[static_cast<std::size_t>(self)];
      for (int round = 0; round < 2000; ++round) {
        std::memset(seat.slot(), round % 100 + self, 100);
        const auto result = seat.arrive(descriptor(static_cast<std::uint64_t>(round)), nullptr,
                                        nullptr, microseconds(round % 2 * 300), Countdown());
        ASSERT_EQ(result.outcome, Outcome::complete);
        if (round % 3 == self) std::this_thread::yield();  // meanwhile the other one continues
        ASSERT_EQ(seat.input(1 - self)[99], std::byte(round % 100 + 1 - self));
        seat.finish();
      }
    });
  }
}

TEST(HostRendezvous, AMemberThatIsLateHasEndedOrDiffersIsNamed) {
  {
    Seats world({3, 5});
    const auto late = world.seats[0]->arrive(descriptor(0), nullptr, nullptr, microseconds(0),
                                             Countdown(milliseconds(30)));
    EXPECT_EQ(late.outcome, Outcome::late);
    EXPECT_EQ(late.members, std::vector<int>{1});
  }
  {
    Seats world({3, 5});
    world.ended = 5;
    const auto gone =
        world.seats[0]->arrive(descriptor(0), nullptr, nullptr, microseconds(0), Countdown());
    EXPECT_EQ(gone.outcome, Outcome::peer_ended);
    EXPECT_EQ(gone.members, std::vector<int>{1});
  }
  Seats world({3, 5});
  std::jthread other([&] {
    world.seats[1]->arrive(descriptor(1), nullptr, nullptr, microseconds(0), Countdown());
  });
  const auto differs =
      world.seats[0]->arrive(descriptor(0), nullptr, nullptr, microseconds(0), Countdown());
  EXPECT_EQ(differs.outcome, Outcome::mismatch);
  EXPECT_EQ(differs.members, std::vector<int>{1});
}

// A member sleeps while it waits for a late one.
TEST(HostRendezvous, WaitingCostsNoCore) {
  Seats world({3, 5});
  const ClockReading begin = read_clock();
  world.seats[0]->arrive(descriptor(0), nullptr, nullptr, microseconds(900),
                         Countdown(milliseconds(400)));
  const ClockReading end = read_clock();
  EXPECT_LT(end.cpu_ns - begin.cpu_ns, 100'000'000);
  EXPECT_EQ(world.waits.rank(), no_rank);
}

}  // namespace
}  // namespace trident
