// Schedule sizes that several tests iterate over.
#pragma once

#include <vector>

#include "base/error.h"
#include "scheduler/interleaved.h"
#include "scheduler/schedules.h"

namespace trident {

// Every schedule with all small (p, m, v, g) that it can run, also with m < p.
inline std::vector<ScheduleRequest> small_requests() {
  std::vector<ScheduleRequest> requests;
  for (int p = 1; p <= 5; ++p) {
    for (int m = 1; m <= 11; ++m) {
      for (const char* kind : {"naive", "gpipe", "1f1b", "pipedream"})
        requests.push_back({kind, p, m, 0, 0});
      if (m >= p - 1) requests.push_back({"pipedream_2bw", p, m, 0, 0});
      requests.push_back({"zbv", p, m, 0, 0});
      if (m >= 2 * p) {
        for (const char* kind : {"zb_h1", "zb_h2", "dualpipev"}) {
          requests.push_back({kind, p, m, 0, 0});
        }
      }
      for (int v = 1; v <= 3; ++v) {
        requests.push_back({"looped_bfs", p, m, v, 0});
        for (int g = 0; g <= m; ++g) {
          for (const char* kind : {"interleaved_1f1b", "interleaved_zero_bubble"}) {
            try {
              interleaved_group_size(kind, p, m, g);
            } catch (const RequestError&) {
              continue;
            }
            requests.push_back({kind, p, m, v, g});
          }
        }
      }
    }
  }
  return requests;
}

}  // namespace trident
