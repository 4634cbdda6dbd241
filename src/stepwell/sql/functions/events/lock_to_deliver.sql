-- Lock the jobs that wait for events, and protect the receivers of signals against their end. It waits only briefly: a
-- session may emit in a long transaction, and a commit must not wait for that. If not _wait, it does not wait at all.
-- Returns the jobs that other sessions have locked.
create or replace function stepwell.lock_to_deliver(_waiting uuid[], _sent_to uuid[], _wait boolean) returns uuid[]
language plpgsql volatile
set lock_timeout = '250ms'
as $$
declare
  _locked uuid[];
  _kept uuid[];
begin
  if _wait then
    begin
      perform from stepwell.job j where j.id = any (_waiting) order by j.id for no key update;
      -- A stronger lock would deadlock: two jobs may send to each other in transactions that hold their own rows.
      perform from stepwell.job j where j.id = any (_sent_to) order by j.id for key share;
      return '{}';
    exception when lock_not_available or deadlock_detected then
      null;
    end;
  end if;
  _locked := array(
    select l.id from (
      select j.id from stepwell.job j where j.id = any (_waiting) order by j.id for no key update skip locked
    ) l
  );
  _kept := array(
    select l.id from (
      select j.id from stepwell.job j where j.id = any (_sent_to) order by j.id for key share skip locked
    ) l
  );
  return array(
    select j.id from stepwell.job j
    where j.id = any (_waiting) and j.id <> all (_locked) or j.id = any (_sent_to) and j.id <> all (_kept)
  );
end
$$;
