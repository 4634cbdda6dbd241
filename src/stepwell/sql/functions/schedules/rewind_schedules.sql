-- Set schedules that the caller saw due at _dues[k] back to _nexts[k], which it computed from stepwell.now(), if their
-- next tick is later or missing: the clock was ahead when that tick was computed and was set back since. Ticks that
-- were already fired for a time to come are on record and are not fired twice. No schedule is set back into the time
-- whose records were pruned. Returns how many.
create or replace function stepwell.rewind_schedules(
  _ids uuid[],
  _versions integer[],
  _dues timestamptz[],
  _nexts timestamptz[]
) returns integer
language plpgsql volatile security definer
as $$
declare
  _rewound integer;
begin
  with wrong as (
    select s.id, greatest(u.next, s.forgotten_until + interval '1 microsecond') as next
    from unnest(_ids, _versions, _dues, _nexts) as u (id, version, due, next)
    join stepwell.schedule s
      on s.id = u.id and s.version = u.version and s.next_tick_at is not distinct from u.due
    -- The limits of the constraint on next_tick_at.
    where u.next >= '1970-01-01 00:00+00' and u.next < '9999-12-31 00:00+00' and s.paused_at is null
      and coalesce(s.next_tick_at > greatest(u.next, s.forgotten_until + interval '1 microsecond'), true)
    order by s.id
    for update of s skip locked
  )
  update stepwell.schedule s set next_tick_at = w.next from wrong w where s.id = w.id;
  get diagnostics _rewound = row_count;
  if _rewound > 0 then
    perform stepwell.notify('stepwell_tick', '');
  end if;
  return _rewound;
end
$$;
