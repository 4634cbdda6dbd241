-- Reckon anew the schedules that were fired for a tick which is still to come: the clock was ahead then and has been set
-- back, and without this they would rest until it is there again. Returns how many.
-- What was fired is on record and is not fired twice. Of times before the oldest record nobody knows, so it goes back no
-- further than that.
create or replace function stepwell.rewind_schedules() returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _rewound integer;
begin
  update stepwell.schedule s
  set next_tick_at = greatest(_now, (select min(t.at) from stepwell.tick t where t.schedule_id = s.id))
  where s.id in (
    select a.id from stepwell.schedule a
    where a.next_tick_at > _now
      and exists (
        -- Once reckoned anew it is due at this tick at the latest.
        select from stepwell.tick t
        where t.schedule_id = a.id and t.at > _now + interval '1 second' and t.at < a.next_tick_at and not t.triggered
      )
    order by a.id
    for update skip locked
  );
  get diagnostics _rewound = row_count;
  if _rewound > 0 then
    perform pg_notify('stepwell_tick', '');
  end if;
  return _rewound;
end
$$;
