-- How runs ended, by the minute.
create or replace view stepwell.stats as
select s.minute, s.task, s.queue, s.succeeded, s.failed, s.cancelled, s.handed_back, s.seconds, s.suspended,
  s.snoozed, s.advanced, s.restarted, s.undone, s.refused
from stepwell.stat s;

comment on view stepwell.stats is 'How runs ended, counted by the minute, kept for a week.';
