// Tests a program whose MPI module is missing, as in a package on a machine without MPI. This
// program defines the function that opens the module, in place of the library's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/transport/mpi_parts.h"

namespace trident::test {
namespace {

TEST(MpiOpened, EachCallNamesTheMissingLibrary) {
  const auto refused = testing::ThrowsMessage<RequestError>(testing::AllOf(
      testing::HasSubstr("MPI can't be loaded: trident_mpi.so: cannot open"),
      testing::HasSubstr("built for Some MPI 1.0"), testing::HasSubstr("\"local\"")));
  EXPECT_THAT([] { make_mpi_job(); }, refused);
  EXPECT_THAT([] { make_mpi_transport({}); }, refused);
  EXPECT_THAT([] { run_mpi({}, [](Transport&) {}); }, refused);
}

}  // namespace
}  // namespace trident::test
