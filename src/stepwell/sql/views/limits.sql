-- The limits and rates by key.
create or replace view stepwell.limits as
select l.key, l.most, l.most_is_set, l.held, l.rate, l.burst, l.rate_is_set, l.next_at, l.waiting, l.set_at
from stepwell.list_limits() l;

comment on view stepwell.limits is
  'Limits and rates by key that have permits, waiting jobs or a setting: the first 10,000 keys, each counted up to '
  '10,000. rate is in jobs per second. most_is_set, rate_is_set: set at run time, at set_at, in place of the code.';
